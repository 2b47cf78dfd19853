"""The description of a job in its row: what other releases read of it, and what is read of theirs."""

import json

from iris.autoscale.closures import Closure
from iris.autoscale.model import Outcome, SliceRecord, SliceState
from iris.store.rows import spec_of, spec_to_json
from iris.store.slice_rows import closure_of, closure_row, slice_of, slice_row
from support.iris.stored_jobs import FULL_SPEC, PLAIN_SPEC


def test_what_every_release_expects_is_always_written_and_defaults_are_not() -> None:
    assert json.loads(spec_to_json(PLAIN_SPEC)) == {
        "entrypoint": {"argv": ["true"]}, "replicas": 1, "max_retries_preemption": 1000, "band": 2,
    }  # fmt: skip


def test_an_option_of_a_later_release_is_passed_over_and_one_that_an_earlier_lacks_is_at_its_default() -> None:
    later = json.dumps({**json.loads(spec_to_json(FULL_SPEC)), "an_option_to_come": [1, 2]})
    assert spec_of(FULL_SPEC.job_id, later, json.dumps(dict(FULL_SPEC.env_vars))) == FULL_SPEC

    nothing = {"cpu_millis": 0, "memory_bytes": 0, "disk_bytes": 0}
    earlier = json.loads(spec_to_json(PLAIN_SPEC)) | {"resources": nothing}
    assert spec_of(PLAIN_SPEC.job_id, json.dumps(earlier)) == PLAIN_SPEC


def test_slices_and_closures_come_back() -> None:
    new = SliceRecord("g-0", "g", SliceState.WANTED, 1, 1)
    failed = SliceRecord("g-1", "g", SliceState.FAILED, 1, 2, 3, 4, 5, 1, Outcome.QUOTA, "words", "why", "ann")
    assert [slice_of(slice_row(record)) for record in (new, failed)] == [new, failed]
    closure = Closure("pool p", Outcome.QUOTA, "words", 1, 2, 3, 4, "digest")
    assert closure_of(closure_row(closure)) == closure
