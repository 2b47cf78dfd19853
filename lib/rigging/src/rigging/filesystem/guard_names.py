"""Names of a filesystem that the guard passes on or leaves to fsspec. It refuses any other that it does not define.

This relies only on fsspec's convention that `_name` is the coroutine of `name`. Everything else in gcsfs and s3fs, such
as the raw client, is refused without a list, so that their new releases cannot open a hole.
"""

from typing import Final

_LOOKS: Final = """
    buckets checksum created dircache disk_usage du exists expand_path find fsid getxattr get_tags glob info
    invalidate_cache invalidate_region_cache is_bucket_versioned isdir isfile lexists list_multipart_uploads listdir
    loop ls metadata modified object_version_info scopes sign size sizes split_path stat tree ukey unstrip_protocol
    url walk _parent _process_limits _strip_protocol
"""
_WRITES: Final = """
    abort_mpu chmod clear_multipart_uploads delete end_transaction make_bucket_requester_pays make_bucket_versioned
    makedir makedirs merge mkdir mkdirs pipe pipe_file put put_file put_tags rm rm_file rmdir setxattr setxattrs
    start_transaction touch transaction transaction_type upload write_bytes write_text
"""

PASSED_ON: Final = frozenset(f"{_LOOKS} {_WRITES}".split())
"""These return no file content. Writes to another region are not charged."""

_COMPOSED: Final = """
    async_impl clear_instance_cache current from_dict from_json get_mapper mirror_sync_methods open read_block
    read_bytes read_text storage_args storage_options to_dict to_json
"""
INHERITED: Final = frozenset(_COMPOSED.split())
"""fsspec's base class implements these with methods of the guard."""


def is_passed_on(name: str) -> bool:
    """Return whether the guard passes this name on: the name is listed, or is the coroutine of a listed one."""
    return name in PASSED_ON or name.removeprefix("_") in PASSED_ON
