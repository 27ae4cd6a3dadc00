"""The ledger of a data set charges before anything is made, never too little, whoever comes between and whatever is killed."""

import math
import os
import random

import pytest

from mia_audit.errors import UserError
from mia_audit.privacy import accounting, ledger
from mia_audit.privacy.accounting import Gaussian, PoissonGaussian, Stated, Unprotected, ZeroConcentrated
from mia_audit.privacy.gaussian import mu_for
from mia_audit.privacy.ledger import RESTART, LedgerTerms, add, charge, entry, read_ledger, total_of

from ..killing import Killed

DELTA = 1e-5
STEP = PoissonGaussian(2.0, 0.1, 50)


def terms(**changes):
    return LedgerTerms(**({"dataset": "digits", "unit": "record", "epsilon": 3.0, "delta": DELTA} | changes))


def made(charged=STEP, what="release", release="1", **changes):
    return entry(what, changes.pop("unit", "record"), charged, {"id": release, "to": "anybody"}, **changes)


def test_the_first_overdraft_is_refused_and_begins_nothing(tmp_path):
    path = tmp_path / "ledger"
    with pytest.raises(UserError, match="the budget would be overdrawn"):
        charge(path, terms(epsilon=0.1), [made()])
    assert not path.exists()
    accepted = 0
    with pytest.raises(
        UserError, match=r"ε would be .* at δ = 1e-05, by a filter of Rényi DP .* is 3, of which 2\..* is spent"
    ):
        while accepted < 100:
            receipt = charge(path, terms(), [made(release=str(accepted))])
            accepted += 1
    header, entries, head = read_ledger(path)
    assert len(entries) == accepted > 1
    assert head == receipt.head
    order = header.terms["order"]
    assert receipt.total.epsilon == pytest.approx(
        accounting.epsilon_of_rdp(order, accepted * STEP.rdp(order), DELTA / 2)
    )
    assert accounting.epsilon_of_rdp(order, (accepted + 1) * STEP.rdp(order), DELTA / 2) > 3


def test_planned_entries_are_composed_exactly_and_nothing_else_is_taken(tmp_path):
    path = tmp_path / "ledger"
    planned = terms(planned=(accounting.terms_of(STEP), accounting.terms_of(Gaussian(4.0))))
    charge(path, planned, [made()])
    receipt = charge(path, planned, [made(Gaussian(4.0), "constants", "2")])
    exact = accounting.epsilon_by_losses([STEP, Gaussian(4.0)], DELTA)
    assert receipt.total.epsilon == exact
    assert "privacy loss distribution" in receipt.total.composed_by
    with pytest.raises(UserError, match="is not among the remaining entries"):
        charge(path, planned, [made()])
    shorter = PoissonGaussian(2.0, 0.1, 10)
    with pytest.raises(UserError, match="is not among the remaining entries"):
        charge(path, planned, [made(shorter, RESTART, "9")])  # of a release that is none of these
    assert charge(path, planned, [made(shorter, RESTART)]).total.epsilon > exact
    for other in (terms(), terms(epsilon=4.0), terms(unit="person")):
        with pytest.raises(UserError, match="created with other"):
            charge(path, other, [made()])


def test_a_plan_above_the_budget_is_refused(tmp_path):
    """Any choice among its entries may depend on results, so the guarantee of all together is that of the whole plan."""
    plan = (accounting.terms_of(STEP), accounting.terms_of(Gaussian(4.0)))
    whole = accounting.epsilon_by_losses([STEP, Gaussian(4.0)], DELTA)
    with pytest.raises(UserError, match=r"privacy\.planned: everything planned has ε = "):
        charge(tmp_path / "ledger", terms(planned=plan, epsilon=0.999 * whole), [made()])
    assert not (tmp_path / "ledger").exists()
    charge(tmp_path / "ledger", terms(planned=plan, epsilon=1.001 * whole), [made()])


def test_a_ledger_that_would_refuse_its_first_entry_is_not_created(tmp_path):
    with pytest.raises(UserError, match="an entry has the unit 'record'"):
        charge(tmp_path / "ledger", terms(unit="person"), [made()])
    assert not (tmp_path / "ledger").exists()


def test_what_kills_repeated_counts_with_all_that_was_planned(tmp_path):
    """Whichever of the others is chosen by the result, and its repetitions, each choice alone would fit the budget."""
    path, repeated = tmp_path / "ledger", PoissonGaussian(2.0, 0.1, 5)
    plan = (accounting.terms_of(STEP), accounting.terms_of(Gaussian(4.0)), accounting.terms_of(Gaussian(5.0)))
    budget = 1.01 * accounting.epsilon_by_losses([STEP, Gaussian(4.0), Gaussian(5.0)], DELTA)
    charge(path, terms(planned=plan, epsilon=budget), [made()])
    assert accounting.epsilon_by_losses([STEP, repeated, Gaussian(4.0)], DELTA) < budget
    with pytest.raises(UserError, match=r"everything planned with the work that kills repeated \(1 entries\) has"):
        charge(path, terms(planned=plan, epsilon=budget), [made(repeated, RESTART)])
    assert len(read_ledger(path)[1]) == 1


@pytest.mark.parametrize("composition", ["gdp", "rdp"])
def test_without_a_budget_no_total_is_said_to_be_that_of_a_filter(composition):
    header = terms(filter=composition, epsilon=math.inf).header()
    composed_by = total_of(header, [made(Gaussian(4.0))]).composed_by
    assert "as if all terms had been fixed" in composed_by and "filter" not in composed_by


def test_other_units_adjacencies_and_kinds_are_refused(tmp_path):
    path = tmp_path / "ledger"
    charge(path, terms(filter="gdp"), [made(Gaussian(4.0))])
    before = path.read_bytes()
    for odd, match in (
        (made(Gaussian(4.0), unit="person"), "unit 'person'; expected that of the ledger, 'record'"),
        (made(Gaussian(4.0), adjacency="replace"), "adjacency 'replace'"),
        (made(), "Poisson samples"),
        (made(ZeroConcentrated(0.1)), "zCDP"),
        (made(Unprotected()), "overdrawn"),
    ):
        with pytest.raises(UserError, match=match) as caught:
            add(path, [odd])
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    add(path, [made(Gaussian(4.0), adjacency="zero-out")])
    ledger.Ledger(tmp_path / "other", ledger.LedgerHeader("record", "zero-out", {"delta": 1e-6})).close()
    with pytest.raises(UserError, match="a ledger of another kind"):
        read_ledger(tmp_path / "other")


def test_without_a_budget_everything_is_counted(tmp_path):
    path = tmp_path / "ledger"
    free = terms(epsilon=math.inf)
    assert charge(path, free, [made()]).total.epsilon < 3
    total = charge(path, free, [made(Unprotected(), release="2")]).total
    assert total.epsilon == math.inf
    assert total.budget == math.inf


def test_a_claimed_delta_is_set_apart(tmp_path):
    path = tmp_path / "ledger"
    total = charge(path, terms(), [made(Stated(0.5, 4e-6))]).total
    order = read_ledger(path)[0].terms["order"]
    assert total.epsilon == accounting.epsilon_of_rdp(order, Stated(0.5).rdp(order), 5e-6)
    with pytest.raises(UserError, match=r"add up to 6e-06, but a filter has 5e-06 for them"):
        add(path, [made(Stated(0.5, 2e-6), release="2")])


class Machine:
    """Four processes that charge for what they publish, run in one; others run, or are killed, within each other's system calls."""

    def __init__(self, path, seed):
        self.path, self.random = path, random.Random(seed)
        self.terms = terms(filter="gdp", epsilon=2.0)
        self.queues = [[f"{process}-{number}" for number in range(3)] for process in range(4)]
        self.published, self.charged_in_vain, self.refused = [], 0, 0
        self.running = set()

    def run(self):
        while any(self.queues):
            self.step()

    def step(self):
        free = [process for process, queue in enumerate(self.queues) if queue and process not in self.running]
        if not free:
            return
        process = self.random.choice(free)
        self.running.add(process)
        release = self.queues[process][0]
        try:
            charge(self.path, self.terms, [made(Gaussian(2.5), release=release)], patience=0.0)
        except UserError as error:
            if "another process" not in str(error):
                assert "overdrawn" in str(error)
                self.refused += 1
                self.queues[process].pop(0)
        except Killed:
            self.queues[process].pop(0)
        else:
            self.published.append(self.queues[process].pop(0))
        finally:
            self.running.remove(process)

    def interrupted(self):
        """Let others run here, or be killed."""
        if self.random.random() < 0.3:
            self.step()
        if self.random.random() < 0.1:
            raise Killed


@pytest.fixture
def simulate(tmp_path, monkeypatch):
    machine = None
    lock = ledger.Ledger._lock

    def write(file, content):
        cut = machine.random.randrange(len(content) + 1)
        os.write(file, content[:cut])
        machine.interrupted()
        os.write(file, content[cut:])
        machine.interrupted()

    def locked(self, path):
        machine.interrupted()
        lock(self, path)
        machine.interrupted()

    monkeypatch.setattr(ledger, "_write_all", write)
    monkeypatch.setattr(ledger.Ledger, "_lock", locked)
    monkeypatch.setattr(ledger.os, "fsync", lambda file: None)

    def run(seeds):
        nonlocal machine
        for seed in seeds:
            machine = Machine(tmp_path / f"ledger-{seed}", seed)
            machine.run()
            charged = [one.released["id"] for one in read_ledger(machine.path)[1]]
            assert len(charged) == len(set(charged))
            assert set(machine.published) <= set(charged)
            assert len(charged) * Gaussian(2.5).mu_squared() <= mu_for(2.0, DELTA / 2) ** 2
            yield machine, charged

    return run


def test_no_interleaving_publishes_what_is_not_charged(simulate):
    check(simulate(range(60)))


@pytest.mark.slow
def test_no_interleaving_of_a_thousand_publishes_what_is_not_charged(simulate):
    check(simulate(range(1000)))


def check(runs):
    refused = in_vain = busy = 0
    for machine, charged in runs:
        refused += machine.refused > 0
        in_vain += len(charged) > len(machine.published)
        busy += 1
    assert refused > busy / 4  # budgets did run out, and kills did come between charge and publication
    assert in_vain > busy / 20


def test_forks_that_charge_at_once_never_overdraw_together(tmp_path):
    """Twenty-odd charges fit, and the forks, which start together, try more: without the lock they overwrite one another's."""
    path, cost = tmp_path / "ledger", Gaussian(10.0)
    budget = terms(filter="gdp", epsilon=2.0)
    waiting, started = os.pipe()
    children = []
    for process in range(4):
        child = os.fork()
        if child == 0:
            os.close(started)
            os.read(waiting, 1)  # until the parent closes its end
            published = 0
            try:
                for number in range(12):
                    charge(path, budget, [made(cost, release=f"{process}-{number}")])
                    published += 1
            except UserError:
                pass
            finally:
                os._exit(published)
        children.append(child)
    os.close(started)
    published = sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    os.close(waiting)
    charged = len(read_ledger(path)[1])
    assert charged == published > 20
    assert charged * cost.mu_squared() <= mu_for(2.0, DELTA / 2) ** 2 < (charged + 1) * cost.mu_squared()


def test_a_ledger_that_is_held_for_long_is_waited_for_and_then_named(tmp_path):
    path = tmp_path / "ledger"
    charge(path, terms(), [made()])
    with ledger.Ledger(path, read_ledger(path)[0]), pytest.raises(UserError, match="another process"):
        charge(path, terms(), [made(release="2")], patience=0.1)
    assert ledger.add(path, [made(release="2")]).entries == 2
