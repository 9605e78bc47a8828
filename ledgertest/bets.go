package ledgertest

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// This file checks bets, and the receipts of lost bets.

// checkBets tries each kind of bet where it holds, where it never held, and where it was lost to another commit.
func checkBets(t *trial) {
	t.commits(node("n", 5), submit(&orbit.Spec{Group: "db"}, "a", "b"), place("a", "n"), gang("g", 0, "x"), mark("m", "v"))
	n, view := t.member("n"), t.view()
	_, set := t.now().Mark("m")
	free := func(id orbit.NodeID, n int64) orbit.Precondition {
		return orbit.NodeFreeOf{Node: id, AtLeast: orbit.Resources{orbit.CPU: n}}
	}
	good := []orbit.Precondition{
		free("n", 5), orbit.NodeAt{Node: "n", Usage: n.Usage, Specification: n.Specification},
		orbit.GroupIn{Group: "db", Level: "rack", Domain: "r-n"}, orbit.MarkAt{Key: "m", Revision: set}, orbit.MarkAt{Key: "none"},
		orbit.GangUnplaced{Gang: "g"}, orbit.NodeAt{Node: "n"},
	}
	for _, bet := range []orbit.Precondition{
		free("n", 6), free("x", 0), orbit.NodeAt{Node: "n", Usage: view + 99}, orbit.NodeAt{Node: "n", Specification: view + 99}, orbit.NodeAt{Node: "x"},
		orbit.GangUnplaced{Gang: "none"}, orbit.GroupIn{Group: "db", Level: "rack", Domain: "r-x"}, orbit.GroupIn{Group: "none", Level: "rack", Domain: "r-n"},
		orbit.GroupIn{Group: "db", Level: "zone", Domain: "r-n"}, orbit.MarkAt{Key: "m", Revision: view + 99}, orbit.MarkAt{Key: "none", Revision: 1},
	} {
		if r := t.refuses(orbit.ErrInfeasible, bets(view, bet)); r.Bet != bet || r.Do != -1 {
			t.Failf("the receipt blames bet %v, commitment %d; it is the bet %T%v", r.Bet, r.Do, bet, bet)
		}
	}
	t.Must(t.now().Check(bets(view, good...)), "State.Check of bets that hold")
	t.admits(orbit.Proposal{View: view, If: good, Do: []orbit.Commitment{place("x", "n"), cancel("a"), mark("m", ""), mark("none", "v"), release("x"), node("n", 4)}})
	for _, bet := range good[:5] {
		t.refuses(orbit.ErrConflict, bets(view, bet))
	}
	t.commits(place("x", "n"))
	t.refuses(orbit.ErrConflict, bets(view, orbit.GangUnplaced{Gang: "g"}))
}

// checkBefore bets on records that the proposal itself changes. Bets are judged on the state before the proposal.
func checkBefore(t *trial) {
	t.commits(node("n", 3), submit(movable(cpu(3)), "a"), place("a", "n"))
	full := orbit.NodeFreeOf{Node: "n", AtLeast: orbit.Resources{orbit.CPU: 3}}
	t.refuses(orbit.ErrInfeasible, orbit.Proposal{View: t.view(), If: []orbit.Precondition{full}, Do: []orbit.Commitment{stopped("a")}})
	empty := orbit.MarkAt{Key: "m"}
	t.admits(orbit.Proposal{ID: orbit.NewProposalID(), If: []orbit.Precondition{empty}, Do: []orbit.Commitment{mark("m", "v"), t.evict("a"), node("m", 3), place("a", "m")}})
	t.refuses(orbit.ErrInfeasible, bets(t.view(), empty))
}

// checkReceipt compares all fields of the receipt of a conflict.
func checkReceipt(t *trial) {
	t.commits(node("n", 5), node("m", 5), submit(cpu(3), "a", "b"))
	view := t.view()
	winner := planned(view, place("a", "n"))
	taken := t.admits(winner)
	t.commits(mark("later", "v"))
	bet := orbit.NodeFreeOf{Node: "n", AtLeast: orbit.Resources{orbit.CPU: 4}}
	r := t.refuses(orbit.ErrConflict, bets(view, bet))
	cpu := t.now().DimensionName(orbit.CPU)
	got := fmt.Sprintf("bet %v, node %s, wants %d of %s, %d free, taken at %d by %v", r.Bet, r.Node, r.Want, r.Dimension, r.Free, r.TakenAt, r.TakenBy)
	want := fmt.Sprintf("bet %v, node n, wants 4 of %s, 2 free, taken at %d by %v", bet, cpu, taken, winner.ID)
	if got != want {
		t.Failf("the receipt says: %s\nit must say:      %s", got, want)
	}
	r = t.loses(view, mark("x", "v"), place("b", "n"))
	if r.Bet != nil || r.Do != 1 || r.Capsule != "b" && r.Node != "n" || r.TakenAt != taken || r.TakenBy != winner.ID {
		t.Failf("the receipt blames commitment %d, capsule %q, node %q, taken at %d by %v; it is commitment 1, b on n, taken at %d by %v",
			r.Do, r.Capsule, r.Node, r.TakenAt, r.TakenBy, taken, winner.ID)
	}
	t.reached(r)
	t.reached(t.mistakes(place("a", "m")))
}

// reached requires that the state that a receipt names exists and that a snapshot has reached it.
func (t *trial) reached(r orbit.Rejection) {
	if s := t.now(); r.At == 0 || s.Revision() < r.At {
		t.Failf("the receipt asks for a view at %d; a snapshot taken afterwards is at %d", r.At, s.Revision())
	}
	if r.TakenAt > r.At {
		t.Failf("the receipt says taken at %d, judged at %d, before that", r.TakenAt, r.At)
	}
}

// checkKinds checks that a rejection is a conflict if the cause is newer than the proposal's view, and otherwise
// infeasible.
func checkKinds(t *trial) {
	t.commits(node("n", 1), node("m", 1), submit(cpu(1), "a", "b"), submit(cpu(2), "big"))
	before := t.view()
	t.commits(place("a", "n"))
	after := t.view()
	for i := range 3 {
		t.loses(before, place("b", "n"))
		t.mistakes(place("b", "n"))
		t.refuses(orbit.ErrInfeasible, planned(after, place("b", "n")))
		t.refuses(orbit.ErrInfeasible, planned(before, place("big", "m"))) // nothing of m has changed
		t.commits(mark(fmt.Sprint("elsewhere", i), "v"))
	}
}

// checkMarks uses a mark as a lease: a holder that has lost it cannot commit, even if the mark has the same value
// again.
func checkMarks(t *trial) {
	mine := t.commits(mark("lease", "mine"))
	guarded := func(at orbit.Revision, key string) orbit.Proposal {
		return orbit.Proposal{ID: orbit.NewProposalID(), View: mine, If: []orbit.Precondition{orbit.MarkAt{Key: "lease", Revision: at}}, Do: []orbit.Commitment{mark(key, "done")}}
	}
	t.admits(guarded(mine, "while it lasts"))
	t.commits(mark("lease", "")) // vanishes
	t.refuses(orbit.ErrConflict, guarded(mine, "without"))
	again := t.commits(mark("lease", "mine"))
	t.refuses(orbit.ErrConflict, guarded(mine, "with the old term"))
	t.admits(guarded(again, "with the new term"))
	s := t.now()
	if value, at := s.Mark("lease"); value != "mine" || at != again {
		t.Failf("the mark reads %q, set at %d; it must be mine, at %d", value, at, again)
	}
	if _, at := s.Mark("without"); at != 0 {
		t.Failf("a holder whose term was over has committed")
	}
}
