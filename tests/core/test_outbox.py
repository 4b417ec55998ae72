from __future__ import annotations

from timeslice_orchestrator.core.effects import Drop, GroupChanged, Save, WakeAt
from timeslice_orchestrator.core.model import DrainRecord, MemberKey, QuarantineRecord
from timeslice_orchestrator.core.outbox import Outbox

MEMBER = MemberKey("a", "g")


def test_a_record_that_is_saved_and_dropped_in_one_step_is_dropped_since_an_earlier_step_may_have_saved_it() -> None:
    out = Outbox()
    out.save(QuarantineRecord(MEMBER, "first"))
    out.take()
    out.save(QuarantineRecord(MEMBER, "again"))
    out.drop(QuarantineRecord(MEMBER, "again"))
    assert out.take() == [Drop(QuarantineRecord(MEMBER, "again"))]


def test_a_record_that_is_dropped_and_saved_in_one_step_is_saved() -> None:
    out = Outbox()
    out.drop(QuarantineRecord(MEMBER, "old"))
    out.save(QuarantineRecord(MEMBER, "new"))
    assert out.take() == [Save(QuarantineRecord(MEMBER, "new"))]


def test_records_come_first_and_changes_of_groups_last_each_once() -> None:
    out = Outbox()
    out.touch("g")
    out.add(WakeAt(1.0))
    out.save(DrainRecord("g"))
    out.touch("g")
    assert out.take() == [Save(DrainRecord("g")), WakeAt(1.0), GroupChanged("g")]
    assert out.take() == []
