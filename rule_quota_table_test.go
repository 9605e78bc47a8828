package orbit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// ruleStep is one proposal on the newest view, and what comes of it.
type ruleStep struct {
	why string
	// Nil: it is committed.
	refused error
	do      []Commitment
}

func grants(why string, do ...Commitment) ruleStep  { return ruleStep{why, nil, do} }
func refuses(why string, do ...Commitment) ruleStep { return ruleStep{why, ErrInfeasible, do} }
func invalid(why string, do ...Commitment) ruleStep { return ruleStep{why, ErrInvalid, do} }

// play proposes one step after the other.
func play(t *testing.T, l court, steps []ruleStep) {
	t.Helper()
	for _, s := range steps {
		if s.refused == nil {
			_, err := l.Propose(bg, Proposal{View: l.now().Revision(), Do: s.do})
			require.NoError(t, err, s.why)
			require.NoError(t, l.now().Verify(), s.why)
			continue
		}
		before := textOf(l.live)
		_, err := l.Propose(bg, Proposal{View: l.now().Revision(), Do: s.do})
		require.ErrorIs(t, err, s.refused, s.why)
		require.Empty(t, diffLines(textOf(l.live), before), s.why)
	}
}

// arrives submits a capsule and places it.
func arrives(id CapsuleID, n NodeID, s *Spec) []Commitment {
	return []Commitment{submitOf(s, id), placeOn(id, n)}
}

func both(all ...[]Commitment) (out []Commitment) {
	for _, do := range all {
		out = append(out, do...)
	}
	return out
}

func ends(id CapsuleID) Commitment { return Release{Capsule: id, Final: true} }

// respecs gives a placed capsule another spec, as the state is then.
func respecs(l court, id CapsuleID, s *Spec) Commitment {
	return Respec{Capsule: id, Since: l.now().Capsule(id).PlacedAt, Spec: s}
}

func devicesOf(count, milli int, models ...string) func(*Spec) {
	return func(s *Spec) { s.Devices = DeviceRequest{Count: count, Milli: milli, Models: models} }
}

func modelNodeOf(id NodeID, model string, count int) PutNode {
	return PutNode{Node{ID: id, Capacity: Resources{CPU: 1000}, Devices: Devices{Model: model, Count: count}}}
}

var twoTeams = []Queue{queueOf("root", "", 0), queueOf("a", "root", 6), queueOf("b", "root", 4)}

// TestQuotaAdmission: what a queue may take, line by line of the rule.
func TestQuotaAdmission(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why    string
		queues []Queue
		steps  func(l court) []ruleStep
	}{
		{"an arrival may take all that is there, and nothing more", []Queue{queueOf("root", "", 5)}, func(court) []ruleStep {
			return []ruleStep{
				grants("5 of 5", arrives("c", "n", inQueue("root", 5))...),
				refuses("1 more", arrives("d", "n", inQueue("root", 1))...),
				grants("nothing is asked for", arrives("e", "n", inQueue("root", 0))...),
				grants("another resource, which the tree does not divide", arrives("f", "n", inQueue("root", 0, remembers(100)))...),
				grants("in no queue", arrives("g", "n", cpuSpec(100))...),
			}
		}},
		{"a queue borrows what its sibling leaves, up to the root", twoTeams, func(court) []ruleStep {
			return []ruleStep{
				grants("6 of its own and 3", arrives("c", "n", inQueue("a", 9))...),
				refuses("2 of the 1 that is left, although b has a quota of 4: it must take it back", arrives("d", "n", inQueue("b", 2))...),
				grants("the last 1", arrives("e", "n", inQueue("b", 1))...),
				refuses("nothing is left", arrives("f", "n", inQueue("a", 1))...),
			}
		}},
		{"a limit of borrowing holds although the root has room", []Queue{queueOf("root", "", 0), queueOf("a", "root", 6, borrows(1)), queueOf("b", "root", 4)}, func(court) []ruleStep {
			return []ruleStep{
				refuses("6 + 1 is the most", arrives("c", "n", inQueue("a", 8))...),
				grants("7", arrives("d", "n", inQueue("a", 7))...),
				refuses("1 more", arrives("e", "n", inQueue("a", 1))...),
				grants("its sibling has the rest", arrives("f", "n", inQueue("b", 3))...),
			}
		}},
		{"a limit of borrowing of the team holds for its queues: 6 + 4, and the 2 that x keeps", threeLevels, func(court) []ruleStep {
			return []ruleStep{
				refuses("13 of the 12 that x may use", arrives("c", "n", inQueue("x", 13))...),
				grants("12", arrives("d", "n", inQueue("x", 12))...),
				refuses("the team borrows 4 already", arrives("e", "n", inQueue("y", 1))...),
				refuses("the same for the team's own", arrives("f", "n", inQueue("team", 1))...),
				grants("the other team has the 4 that are left at the root", arrives("g", "n", inQueue("other", 4))...),
			}
		}},
		{"what is not lent stays for its queue", []Queue{queueOf("root", "", 0), queueOf("a", "root", 6), queueOf("b", "root", 4, lends(1))}, func(court) []ruleStep {
			return []ruleStep{
				refuses("b lends 1 of 4 only", arrives("c", "n", inQueue("a", 8))...),
				grants("7", arrives("d", "n", inQueue("a", 7))...),
				grants("b still has 3", arrives("e", "n", inQueue("b", 3))...),
				refuses("what it has lent it must take back", arrives("f", "n", inQueue("b", 1))...),
			}
		}},
		{"the sum of a proposal is judged", twoTeams, func(court) []ruleStep {
			return []ruleStep{
				refuses("5 fit and 6 fit, both do not", both(arrives("c", "n", inQueue("a", 5)), arrives("d", "n", inQueue("b", 6)))...),
				grants("5 and 5", both(arrives("c", "n", inQueue("a", 5)), arrives("d", "n", inQueue("b", 5)))...),
				grants("one ends, another comes", ends("c"), submitOf(inQueue("a", 5), "e"), placeOn("e", "n")),
				grants("in the other order too", submitOf(inQueue("b", 5), "f"), placeOn("f", "n"), ends("e")),
				refuses("one that is larger by 1", ends("f"), submitOf(inQueue("b", 6), "g"), placeOn("g", "n")),
			}
		}},
		{"a growth is an arrival of what it adds", twoTeams, func(l court) []ruleStep {
			l.commits(both(arrives("c", "n", inQueue("a", 5)), arrives("d", "n", inQueue("b", 4)))...)
			return []ruleStep{
				refuses("7 of 6", respecs(l, "c", inQueue("a", 7))),
				grants("6", respecs(l, "c", inQueue("a", 6))),
				grants("it shrinks", respecs(l, "c", inQueue("a", 1))),
				grants("it has another priority, which takes nothing", respecs(l, "c", inQueue("a", 1, ranked(9)))),
				grants("a fact is not judged", Respec{Capsule: "c", Since: l.now().Capsule("c").PlacedAt, Spec: inQueue("a", 20), Applied: true}),
				grants("the overdrawn one shrinks by a part", respecs(l, "c", inQueue("a", 12))),
				refuses("the overdrawn one grows", respecs(l, "c", inQueue("a", 13))),
				grants("memory, which is not divided, may grow", respecs(l, "c", inQueue("a", 12, remembers(5)))),
			}
		}},
		{"a move to another queue is an arrival there", []Queue{queueOf("root", "", 0), queueOf("a", "root", 6, borrows(0)), queueOf("b", "root", 4, borrows(2)), queueOf("tree", "", 3)}, func(l court) []ruleStep {
			l.commits(both(arrives("c", "n", inQueue("a", 5)), arrives("d", "n", inQueue("b", 4)), arrives("e", "n", cpuSpec(4)))...)
			return []ruleStep{
				refuses("b may not borrow 5", respecs(l, "c", inQueue("b", 5))),
				refuses("the other tree has 3 of the 5", respecs(l, "c", inQueue("tree", 5))),
				refuses("one of no queue asks for 4 of 1", respecs(l, "e", inQueue("b", 4))),
				grants("it shrinks and moves: what it takes there is judged", respecs(l, "c", inQueue("b", 2))),
				grants("another takes its place", respecs(l, "e", inQueue("a", 4))),
				grants("out of all queues", respecs(l, "e", cpuSpec(40))),
				grants("as a fact, into a queue that has no room", Respec{Capsule: "e", Since: l.now().Capsule("e").PlacedAt, Spec: inQueue("tree", 40), Applied: true}),
			}
		}},
		{"a move between siblings takes nothing more of a root that is used up", twoTeams, func(l court) []ruleStep {
			l.commits(both(arrives("c", "n", inQueue("a", 7)), arrives("d", "n", inQueue("a", 3)))...)
			return []ruleStep{
				grants("a borrows 4; 3 of these become b's own", respecs(l, "d", inQueue("b", 3, func(s *Spec) { s.Movable = true }))),
				grants("a placed capsule moves to another node", Evict{Capsule: "d", From: "n", Since: l.now().Capsule("d").PlacedAt}, placeOn("d", "m")),
			}
		}},
		{"a smaller quota evicts nobody and admits nothing", twoTeams, func(court) []ruleStep {
			return []ruleStep{
				grants("all is used", both(arrives("c", "n", inQueue("a", 6)), arrives("d", "n", inQueue("b", 4)))...),
				grants("a has 2 of its 6 left", PutQueue{queueOf("a", "root", 2)}),
				refuses("b may not take anything", arrives("e", "n", inQueue("b", 1))...),
				grants("b changes one for another of the same size: its use does not rise", ends("d"), submitOf(inQueue("b", 4), "f"), placeOn("f", "n")),
				refuses("nor does that help if 1 more is asked for", ends("f"), submitOf(inQueue("b", 5), "g"), placeOn("g", "n")),
				grants("c ends: 4 of 6 are used", ends("c")),
				grants("2 are free", arrives("h", "n", inQueue("a", 2))...),
			}
		}},
		{"a quota and what needs it may come together", twoTeams, func(court) []ruleStep {
			return []ruleStep{
				grants("a new queue and its work", both(putAll(queueOf("c", "root", 5)), arrives("c", "n", inQueue("c", 15)))...),
				refuses("one that shrinks, and work that fits before", both(arrives("d", "n", inQueue("tree", 2)), putAll(queueOf("tree", "", 1)))...),
				grants("the quota may come after the work in the list", both(arrives("d", "n", inQueue("tree", 2)), putAll(queueOf("tree", "", 2)))...),
				grants("a larger quota", both(putAll(queueOf("tree", "", 3)), arrives("e", "n", inQueue("tree", 1)))...),
			}
		}},
		{"what is found counts, and is not judged", twoTeams, func(court) []ruleStep {
			return []ruleStep{
				grants("12 of 10", foundOn("c", "n", inQueue("a", 12))),
				refuses("then nothing comes", arrives("d", "n", inQueue("b", 1))...),
				grants("something is found again", foundOn("e", "n", inQueue("b", 1))),
				grants("and ends", ends("e"), ends("c")),
				grants("then there is room", arrives("d", "n", inQueue("b", 10))...),
			}
		}},
		{"only what is asked for is judged", []Queue{queueOf("root", "", 5, has("memory", 5))}, func(court) []ruleStep {
			return []ruleStep{
				grants("memory is overdrawn by what is found", foundOn("c", "n", inQueue("root", 1, remembers(9)))),
				grants("who asks for cpu alone may come", arrives("d", "n", inQueue("root", 4))...),
				refuses("who asks for memory too may not", arrives("e", "n", inQueue("root", 0, remembers(1)))...),
			}
		}},
		{"what a queue does not lend is there for it although its parent is overdrawn", []Queue{queueOf("root", "", 0), queueOf("a", "root", 3, lends(1))}, func(court) []ruleStep {
			return []ruleStep{
				grants("2 of the 1 that is lent are found", foundOn("c", "n", inQueue("root", 2))),
				refuses("a has 3 less the 1 that is overdrawn", arrives("d", "n", inQueue("a", 2))...),
				grants("1 is left, and the root's use does not rise", arrives("d", "n", inQueue("a", 1))...),
			}
		}},
		{"devices count by the model that is got", []Queue{queueOf("root", "", 100, has("device/A100", 1500))}, func(court) []ruleStep {
			either := devicesOf(1, 1000, "A100", "T4")
			return []ruleStep{
				grants("two models of nodes", modelNodeOf("fast", "A100", 8), modelNodeOf("slow", "T4", 8)),
				grants("1000 of 1500", submitOf(inQueue("root", 1, either), "c"), Place{Capsule: "c", Node: "fast", Devices: 1}),
				refuses("1000 more of the same model", submitOf(inQueue("root", 1, either), "d"), Place{Capsule: "d", Node: "fast", Devices: 2}),
				grants("the model that the tree does not divide", submitOf(inQueue("root", 1, either), "d"), Place{Capsule: "d", Node: "slow", Devices: 2}),
				grants("half of one", submitOf(inQueue("root", 1, devicesOf(1, 500)), "e"), Place{Capsule: "e", Node: "fast", Devices: 2}),
				refuses("two tenths of each of two", submitOf(inQueue("root", 1, devicesOf(2, 200)), "f"), Place{Capsule: "f", Node: "fast", Devices: 12}),
			}
		}},
		{"extras count", []Queue{queueOf("root", "", 100, has("extra/ip", 3))}, func(court) []ruleStep {
			asks := func(n int64) func(*Spec) { return func(s *Spec) { s.Extras = []Extra{{"ip", n}} } }
			return []ruleStep{
				refuses("4 of 3", arrives("c", "n", inQueue("root", 0, asks(4)))...),
				grants("3", arrives("d", "n", inQueue("root", 0, asks(3)))...),
				refuses("1 more", arrives("e", "n", inQueue("root", 0, asks(1)))...),
			}
		}},
		{"what waits, holds and nominations are not use", []Queue{queueOf("root", "", 5)}, func(court) []ruleStep {
			hold := holdOf("h", "n", 100)
			return []ruleStep{
				grants("more than the quota waits", submitOf(inQueue("root", 5), "c", "d", "e")),
				grants("a hold", hold),
				grants("a nomination", Nominate{Capsule: "d", Parts: []NominatedRoom{{Node: "n", Room: Resources{CPU: 5}}}, Ends: hold.Ends}),
				grants("all of it is there", placeOn("c", "n")),
			}
		}},
		{"what still runs of an earlier placement is not use", []Queue{queueOf("root", "", 5)}, func(l court) []ruleStep {
			l.commits(confirmingNode("k", 100))
			l.commits(arrives("c", "k", inQueue("root", 5))...)
			l.commits(Confirm{Capsule: "c", Since: l.now().Capsule("c").PlacedAt, Begun: true})
			return []ruleStep{
				grants("it ends, and runs on", ends("c")),
				grants("its quota is free", arrives("d", "n", inQueue("root", 5))...),
			}
		}},
		{"a gang counts whole", []Queue{queueOf("root", "", 5)}, func(court) []ruleStep {
			crew := func(id GangID, a, b CapsuleID) Submit {
				return Submit{Gang: &Gang{ID: id, Roles: []Role{{Name: "r", Spec: inQueue("root", 3), Members: []CapsuleID{a, b}, Min: 2}}}}
			}
			return []ruleStep{
				refuses("3 + 3 of 5", crew("g", "c", "d"), placeOn("c", "n"), placeOn("d", "n")),
				grants("a larger quota, and the gang", PutQueue{queueOf("root", "", 6)}, crew("g", "c", "d"), placeOn("c", "n"), placeOn("d", "n")),
			}
		}},
		{"a proposal may take as much of a queue as it gives back elsewhere in it", twoTeams, func(l court) []ruleStep {
			l.commits(foundOn("c", "n", inQueue("a", 14)))
			return []ruleStep{
				grants("a gives 2 and takes 2, and stays overdrawn", respecs(l, "c", inQueue("a", 12)), submitOf(inQueue("a", 2), "d"), placeOn("d", "n")),
				refuses("b takes what a gives: b's use rises, and nothing is available", respecs(l, "c", inQueue("a", 10)), submitOf(inQueue("b", 2), "e"), placeOn("e", "n")),
				grants("if all is there again, it may", respecs(l, "c", inQueue("a", 6)), submitOf(inQueue("b", 2), "e"), placeOn("e", "n")),
			}
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			l := newCourt(t, append(putAll(c.queues...), bigNode("n"), bigNode("m"))...)
			play(t, l, c.steps(l))
		})
	}
}

// TestQuotaOfANodeWithOtherDevices: capsules count for the model that their node has now, and nothing judges that.
func TestQuotaOfANodeWithOtherDevices(t *testing.T) {
	t.Parallel()
	l := newCourt(t, PutQueue{queueOf("q", "", 9, has("device/A100", 1000), has("device/T4", 0))}, modelNodeOf("n", "A100", 2))
	l.commits(submitOf(inQueue("q", 1, devicesOf(1, 1000)), "c"), Place{Capsule: "c", Node: "n", Devices: 1})
	l.commits(modelNodeOf("n", "T4", 2))
	q, _ := l.now().Queue("q")
	require.Equal(t, map[string]int64{"cpu": 1, "device/A100": 0, "device/T4": 1000}, q.Used())
}

// TestQueuesComeAndGo: what names a queue, and when there may be one.
func TestQueuesComeAndGo(t *testing.T) {
	t.Parallel()
	deep := func(levels int) (out []Queue) {
		for i, id := range []QueueID{"q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9"}[:levels] {
			out = append(out, Queue{ID: id})
			if i > 0 {
				out[i].Parent = out[i-1].ID
			}
		}
		return out
	}
	for _, c := range []struct {
		why   string
		steps func(l court) []ruleStep
	}{
		{"work for an unknown queue is refused", func(l court) []ruleStep {
			l.commits(submitOf(cpuSpec(1), "c"))
			return []ruleStep{
				refuses("a submission", submitOf(inQueue("q", 1), "d")),
				refuses("a gang", Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: inQueue("q", 1), Members: []CapsuleID{"d"}}}}}),
				refuses("another spec", Respec{Capsule: "c", Spec: inQueue("q", 1)}),
			}
		}},
		{"what is found in an unknown queue is counted as soon as there is one", func(l court) []ruleStep {
			return []ruleStep{
				grants("found", foundOn("c", "n", inQueue("q", 4))),
				grants("the queue comes", PutQueue{queueOf("q", "", 5)}),
				refuses("1 is left", arrives("d", "n", inQueue("q", 2))...),
				grants("1", arrives("e", "n", inQueue("q", 1))...),
			}
		}},
		{"a queue stays while something names it", func(l court) []ruleStep {
			l.commits(putAll(queueOf("root", "", 5), queueOf("q", "root", 5))...)
			l.commits(submitOf(inQueue("q", 1), "c", "d"), placeOn("c", "n"))
			return []ruleStep{
				refuses("a child", RemoveQueue{"root"}),
				refuses("capsules", RemoveQueue{"q"}),
				grants("one ends", ends("d")),
				refuses("one runs", RemoveQueue{"q"}),
				grants("it waits again", Release{Capsule: "c", Stopped: true}),
				refuses("one waits", RemoveQueue{"q"}),
				grants("it ends, and the queue with it", RemoveQueue{"q"}, ends("c")),
				grants("the root is alone", RemoveQueue{"root"}),
				refuses("there is none", RemoveQueue{"root"}),
				grants("the id may be used again", PutQueue{queueOf("root", "", 1)}),
			}
		}},
		{"a parent must be there, or be put earlier in the proposal", func(l court) []ruleStep {
			return []ruleStep{
				refuses("none", PutQueue{queueOf("q", "root", 1)}),
				refuses("it comes later", PutQueue{queueOf("q", "root", 1)}, PutQueue{queueOf("root", "", 1)}),
				grants("it comes first", PutQueue{queueOf("root", "", 1)}, PutQueue{queueOf("q", "root", 1)}),
				refuses("it goes first", RemoveQueue{"root"}, RemoveQueue{"q"}),
				grants("both go", RemoveQueue{"q"}, RemoveQueue{"root"}),
			}
		}},
		{"at most 8 levels", func(l court) []ruleStep {
			return []ruleStep{
				invalid("9", putAll(deep(9)...)...),
				grants("8", putAll(deep(8)...)...),
				invalid("one below", PutQueue{Queue{ID: "q9", Parent: "q8"}}),
				invalid("one above", PutQueue{Queue{ID: "q0"}}, PutQueue{Queue{ID: "q1", Parent: "q0"}}),
				grants("one beside", PutQueue{Queue{ID: "q9", Parent: "q7"}}),
			}
		}},
		{"no cycles", func(l court) []ruleStep {
			l.commits(putAll(deep(3)...)...)
			return []ruleStep{
				invalid("its own parent", PutQueue{Queue{ID: "q1", Parent: "q1"}}),
				invalid("its grandchild", PutQueue{Queue{ID: "q1", Parent: "q3"}}),
				invalid("new ones", PutQueue{Queue{ID: "q8"}}, PutQueue{Queue{ID: "q9", Parent: "q8"}}, PutQueue{Queue{ID: "q8", Parent: "q9"}}),
				grants("the tree is turned round", PutQueue{Queue{ID: "q3"}}, PutQueue{Queue{ID: "q2", Parent: "q3"}}, PutQueue{Queue{ID: "q1", Parent: "q2"}}),
			}
		}},
		{"amounts that cannot be", func(l court) []ruleStep {
			return []ruleStep{
				invalid("below 0", PutQueue{queueOf("q", "", -1)}),
				invalid("borrow below 0", PutQueue{queueOf("q", "", 1, borrows(-1))}),
				invalid("lend below 0", PutQueue{queueOf("q", "", 1, lends(-1))}),
				invalid("no such resource", PutQueue{queueOf("q", "", 1, has("cores", 1))}),
				invalid("no model", PutQueue{queueOf("q", "", 1, has("device/", 1))}),
				invalid("a weight below 0", PutQueue{queueOf("q", "", 1, weighs(-1))}),
				invalid("a weight too large", PutQueue{queueOf("q", "", 1, weighs(1<<20+1))}),
				invalid("no id", PutQueue{queueOf("", "", 1)}),
				invalid("no id", RemoveQueue{}),
			}
		}},
		{"a tree changes under what runs", func(l court) []ruleStep {
			l.commits(putAll(queueOf("root", "", 0), queueOf("a", "root", 6), queueOf("b", "root", 4))...)
			l.commits(arrives("c", "n", inQueue("a", 10))...)
			return []ruleStep{
				grants("b leaves for a tree of its own, and takes its quota along", PutQueue{queueOf("b", "", 4)}),
				grants("it has 4", arrives("d", "n", inQueue("b", 4))...),
				refuses("a has 6 and uses 10", arrives("e", "n", inQueue("a", 1))...),
				grants("b comes back: 14 of 10", PutQueue{queueOf("b", "root", 4)}),
				refuses("nothing is there", arrives("e", "n", inQueue("b", 1))...),
			}
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			l := newCourt(t, bigNode("n"))
			play(t, l, c.steps(l))
		})
	}
}
