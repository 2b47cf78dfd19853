"""The guard's treatment of each name of a filesystem; a name that is not here is refused.

A test walks over every public name and async twin of fsspec, gcsfs and s3fs, so that a new release cannot open a hole.
"""

from enum import StrEnum
from typing import Final


class NameKind(StrEnum):
    """How the guard treats a method or attribute of the filesystem under it."""

    FREE = "free"
    """Names, sizes, settings: passed on. No content of a file comes back."""
    WRITE = "write"
    """Writes, deletes, changes: passed on. What is written to another region is not charged."""
    GUARDED = "guarded"
    """Reads content: charged when it crosses regions."""
    COMPOSED = "composed"
    """Inherited from fsspec's base class, which does it by the guarded methods."""
    REFUSED = "refused"
    """A way around the guard, such as the raw client, or an inner part without use outside."""


_FREE = """
    asynchronous batch_size base batch_url_base blocksize cachable connect_timeout default_block_size default_location
    dircache disable_throttling endpoint_url expand_path loop on_google project protocol read_timeout retries
    requester_pays root_marker scopes sep split_path url version_aware version
    buckets checksum created disk_usage du exists find fsid getxattr get_tags glob info invalidate_cache
    invalidate_region_cache is_bucket_versioned isdir isfile lexists list_multipart_uploads listdir ls metadata modified
    object_version_info sign size sizes stat tree ukey unstrip_protocol walk
    _checksum _du _exists _expand_path _find _getxattr _glob _info _invalidate_region_cache _is_bucket_versioned _isdir
    _isfile _list_buckets _list_multipart_uploads _list_objects _ls _ls_from_cache
    _metadata _object_version_info _parent _process_limits _sign _size
    _sizes _split_path _strip_protocol _url _walk
"""
_WRITE = """
    abort_mpu chmod clear_multipart_uploads delete end_transaction make_bucket_requester_pays make_bucket_versioned
    makedir makedirs merge mkdir mkdirs pipe pipe_file put put_file put_tags rm rm_file rmdir setxattr setxattrs
    start_transaction touch transaction transaction_type upload write_bytes write_text
    _abort_mpu _bulk_delete _chmod _clear_multipart_uploads _make_bucket_requester_pays _make_bucket_versioned _makedirs
    _merge _mkdir _pipe _pipe_file _put _put_file _rm _rm_file _rm_files _rmdir _setxattr _setxattrs _touch
"""
_GUARDED = """
    _open cat cat_file cat_ranges copy cp cp_file download get get_file head move mv mv_file open_async rename tail
    _cat _cat_file _cat_ranges _copy _cp_file _get _get_file _mv _mv_file
"""
# `current`, `clear_instance_cache` and the JSON forms are about guards as filesystems, which the base class knows.
_COMPOSED = """
    clear_instance_cache current from_dict from_json get_mapper mirror_sync_methods open read_block read_bytes
    read_text to_dict to_json async_impl storage_args storage_options
"""
_REFUSED = """
    _call _call_list_objects _call_s3 _close_resources _concurrent_list_objects_helper _concurrent_mrd_fetch
    _create_hns_folder _delete_files _do_list_objects _expand_path_with_details _fetch_range_split _get_all_folders
    _get_bucket_type _get_control_plane_client _get_delegated_s3pars _get_directory_info _get_grpc_client
    _get_threshold_for_disk_reads _is_bucket_hns_enabled _is_zonal_bucket
    _lookup_bucket_type _lsbuckets _lsdir _mv_file_cache_update _perform_rm _process_limits_to_offset_and_length
    _rm_bucket_paths _rm_file_cache_update _rm_files_cache_update _rm_versioned_bucket_contents
    _sequential_list_objects_helper _upload_file_part_concurrent _write_file_cache_update
    grpc_client sync_process_limits_to_offset_and_length
    _cat_file_concurrent _cat_file_sequential _connect _copy_basic _copy_etag_preserved _copy_managed
    _download_file_part_concurrent _get_file_concurrent _get_file_request _get_object _request _set_session
    call call_s3 close_session connect get_delegated_s3pars get_s3 s3 session set_session
    MIN_CHUNK_SIZE_FOR_CONCURRENCY
"""

KINDS: Final[dict[str, NameKind]] = {
    name: kind
    for kind, names in (
        (NameKind.FREE, _FREE),
        (NameKind.WRITE, _WRITE),
        (NameKind.GUARDED, _GUARDED),
        (NameKind.COMPOSED, _COMPOSED),
        (NameKind.REFUSED, _REFUSED),
    )
    for name in names.split()
}
