package orbit

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Score rates a node for a spec: lower is better, and equal values go by tie. A score sees the node as the plan leaves
// it, the node's telemetry report and the shared spec, never the capsule. It must be a pure function of the three: that
// makes equivalence classes and caching exact. A value that is NaN or infinite excludes the node from the choice.
//
// A score may also have a method PickDevices(node *NodeState, spec *Spec) (DeviceSet, bool) that chooses the device
// instances; the default is [NodeState.PickDevices]. Package score has ready scores, and two more interfaces: for a
// score that can bound its values (Bounded), and for one that reads more than its arguments and must say so
// (Versioned).
//
// A score that chooses at random has a method Draw(decision uint64) (Score, bool). It returns the score for one
// decision, and false if it does not depend on chance after all. A placement engine calls Draw before every choice and
// rates all nodes with the score that it returns. The number of the decision changes with every view, after every
// Place, and with the Seed.
type Score interface {
	Score(node *NodeState, report *Report, spec *Spec) (value, tie float64)
}

// PlacementEngine is the building block with which a navigator chooses nodes; [Draft.PlaceBest] calls it and places.
//
// Hard requirements filter, soft forces score, lower is better. Equal values go by tie, and then by a hash of the node
// with the engine's seed, so that navigators with different seeds do not herd onto one node; with seed 0 they go by
// node id. Where the view has parts ([View.Part]), a node in a lower part comes before all nodes in higher ones. Before
// all this, a node that is no last resort ([Draft.LastResort]) comes before all that are.
//
// A placement engine belongs to one navigator and is not safe for concurrent use. It may keep an index of the nodes of
// the draft that it was last used with, so use each engine with one draft.
type PlacementEngine interface {
	// Best returns the best node of the draft for one capsule of the spec, as the plan leaves the nodes. The error is a
	// *NoFit if no node fits; before the first Sync of the draft none does. Without a draft or a spec the error wraps
	// ErrInvalid.
	Best(draft *Draft, spec *Spec) (Choice, error)
}

// Choice is a node for a capsule, with the device instances there.
type Choice struct {
	// Node is the node as it is before the placement, valid until the draft's next step.
	Node *NodeState
	// Devices are the device instances, for a spec that asks for devices ([NodeState.PickDevices] chooses them).
	Devices DeviceSet
	// Value and Tie are what the score returned, where lower is better; a draft does not read them.
	Value, Tie float64
	// Note is stored with the placement by Draft.Place, for example "warm"; placement engines leave it empty.
	Note string
}

// NoFit tells why no node takes a capsule. The zero value has no counts; [Draft.NoFit] makes a NoFit from counts, and
// [Draft.Diagnose] one that counts the nodes when it is first read, because most never are. The answer does not depend
// on when it is read: it is about the view on which was planned, less what the plan had given away by then. The exception
// are answers in the Plan.Unplaced of an [Engine]'s navigator that are first read after the engine's next pass has begun:
// they are about the engine's newest view then. So they keep no old state in memory, as other answers do until they are
// read. The methods may be called from any goroutine.
type NoFit struct {
	count *fitCount
	// The domains to which Spec.Near binds the spec, if the diagnosis has taken them into account.
	near *nearby
	// Rules of company may have closed domains to the spec.
	ruled bool
	// What the queue of the spec lacks, so that no node was asked; nil: nothing. Names are those of the dimensions.
	lack  *lack
	names *dimensionNames
	// The device models for which the queue lacks quota. With lack, these are all that the spec accepts, or it lacks another resource.
	short []string
	// What the answer rests on besides the nodes.
	rest rest
	// The answer holds even if capsules of lower priority are evicted; and a budget has refused such an eviction.
	evicts, kept bool
	// No moves of other capsules make room, although some may move.
	moves bool
}

// DespiteMoves returns the same answer, and records that no moves of other capsules make room for the spec, although
// capsules that are in its way may move. They may as soon as any node gains room, also one that does not take the spec. A
// class that is parked by this NoFit is then tried again: at once, and if that was in vain, after waits that double.
func (e *NoFit) DespiteMoves() *NoFit {
	if e == nil {
		return nil
	}
	out := *e
	out.moves = true
	return &out
}

// DespiteEvictions returns the same answer, and records that no node takes the spec even if capsules of lower priority
// are evicted; byBudget says that a budget has refused an eviction that might have helped. A class that is parked by this
// NoFit is then planned again also when a node would take it without its capsules of lower priority, or when a budget can
// spare more members. BestEvicting of the placement engines in package place returns such answers.
func (e *NoFit) DespiteEvictions(byBudget bool) *NoFit {
	if e == nil {
		return nil
	}
	out := *e
	out.evicts, out.kept = true, e.kept || byBudget
	return &out
}

// DependsOn returns the same answer, and records that it rests on the argument by, besides the nodes, their reports and
// the spec: the answer may change as soon as by.Version returns another value than version. It replaces what an earlier
// call has recorded. A class that is parked by this NoFit is then planned again. Engines call Version with their view
// before each pass, and when a change of the ledger may concern a class that they have parked; never while they plan.
// If the version rises at another time, [Engine.Nudge] makes the engine look. Placement engines call DependsOn for
// filters that have a version.
func (e *NoFit) DependsOn(by interface{ Version(view *View) uint64 }, version uint64) *NoFit {
	if e == nil || by == nil {
		return e
	}
	out := *e
	if out.rest = (rest{by, version}); !reflect.ValueOf(by).Comparable() {
		out.rest.on = &boxedVersion{by}
	}
	return &out
}

// boxedVersion makes a versioned value comparable, by its address, so that it can be a map key.
type boxedVersion struct{ versioned }

// fitCount counts nodes by the reason why they fail.
type fitCount struct {
	// Guards the fields below. Once the nodes are counted, none of them changes.
	mu sync.Mutex
	// How to count; nil: the counts are there. The state, if all its nodes are counted.
	diagnose func() map[Misfit]int
	state    *State
	spec     *Spec
	names    *dimensionNames
	// The rules of company that concern the spec, with the counts of the plan; nil: there are none.
	rules *verdicts
	// What Draft.Diagnose was told about nodes that only the navigator refuses.
	refused map[Misfit]int
	// The result: how many nodes were evaluated, how many fail for each reason, why none would do if it were empty, which
	// domains take no work and count for rules Even, and whether there is no node at all.
	nodes    int
	reasons  map[string]int
	tooLarge string
	idle     string
	none     bool
	// How many of the nodes would have enough room without the capsules there that may be moved.
	movable int
}

// Quota returns the receipt with which a ledger would refuse the capsule because its queue lacks quota: Queue, Level, Dimension and
// Borrowers are set, and Want is how much is missing. Nil: the answer is about nodes.
func (e *NoFit) Quota() *Rejection {
	if e == nil || e.lack == nil {
		return nil
	}
	r := &Rejection{Kind: ErrInfeasible, Reason: e.lack.text(e.names), Want: e.lack.missing}
	e.lack.fill(r, e.names)
	return r
}

// Texts returns each reason with its count, the most frequent first: "801 lack memory", and for one node "1 lacks
// memory".
func (e *NoFit) Texts() []string {
	reasons := e.Reasons()
	byCount := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(reasons[b]-reasons[a], strings.Compare(a, b))
	})
	for i, why := range byCount {
		nodes := reasons[why]
		if nodes == 1 {
			why = singular(why)
		}
		byCount[i] = fmt.Sprintf("%d %s", nodes, why)
	}
	return byCount
}

// Nodes returns how many nodes were evaluated.
func (e *NoFit) Nodes() int {
	if e == nil || e.count == nil {
		return 0
	}
	return e.count.counted().nodes
}

// Reasons returns the number of nodes that fail for each reason. A reason completes "n nodes ...", as in "lack memory".
// Each node is counted under the first reason that holds for it. The map must not be written to.
func (e *NoFit) Reasons() map[string]int {
	if e == nil || e.count == nil {
		return nil
	}
	return e.count.counted().reasons
}

// TooLarge says that the spec would fit on no node even if all were empty, as [State.TooLarge] does; "" if it would, or
// if that is not known.
func (e *NoFit) TooLarge() string {
	if e.Nodes() == 0 { // it counts the nodes, unless they are counted
		return ""
	}
	return e.count.tooLarge
}

// Idle says which domains take no work and count for the rules Even of the spec all the same, as [State.IdleDomains]
// does; "" if none do, or if that is not known.
func (e *NoFit) Idle() string {
	if e.Nodes() == 0 {
		return ""
	}
	return e.count.idle
}

// Movable returns on how many nodes the spec lacks only free capacity or devices, and would have enough without the
// capsules there that may be moved ([State.FitsByMoves]); 0 if that is not known. It says nothing about whether other nodes
// take these: whatif.Explain searches for moves that the ledger takes.
func (e *NoFit) Movable() int {
	if e.Nodes() == 0 {
		return 0
	}
	return e.count.movable
}

// movableText says the same in words; "" if there is no such node.
func (e *NoFit) movableText() string {
	n := e.Movable()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("on %d of them movable work takes what is lacking", n)
}

// Error reads like "0 of 1213 nodes fit: 801 lack a device with 600 milli free, 412 lack memory". It adds TooLarge,
// Idle and Movable, and says if there are no nodes.
func (e *NoFit) Error() string {
	if e != nil && e.lack != nil {
		return e.lack.text(e.names)
	}
	text := fmt.Sprintf("0 of %d nodes fit", e.Nodes())
	if e.Nodes() == 0 && e != nil && e.count != nil && e.count.none {
		text = "there are no nodes"
	}
	if reasons := e.Texts(); len(reasons) > 0 {
		text += ": " + strings.Join(reasons, ", ")
	}
	parts := slices.DeleteFunc([]string{text, e.shortText(), e.TooLarge(), e.Idle(), e.movableText()}, func(part string) bool { return part == "" })
	return strings.Join(parts, "; ")
}

// shortText says for which device models the queue lacks quota; "" if for none.
func (e *NoFit) shortText() string {
	if e == nil || len(e.short) == 0 {
		return ""
	}
	return "the queue has no quota left for devices of " + strings.Join(e.short, ", ")
}

// counted returns c after it has counted the nodes.
func (c *fitCount) counted() *fitCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.diagnose != nil {
		c.make()
	}
	return c
}

// readLater makes an answer that has not been read yet be about the view that newest returns when it is read. It drops the
// view that the answer was about.
func (c *fitCount) readLater(newest func() *View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.diagnose == nil {
		return
	}
	c.state, c.names, c.rules = nil, nil, nil
	c.diagnose = func() map[Misfit]int {
		draft := Draft{view: newest()}
		now := draft.Diagnose(c.spec, c.refused, Misfit{Why: "fit by now, unless the navigator refuses them"}).count
		c.state, c.names, c.rules = now.state, now.names, now.rules
		counts := now.diagnose()
		c.movable = now.movable
		return counts
	}
}

// make counts the nodes, and then drops what it needed for that, so that the state can be freed. It requires that c.mu is
// held.
func (c *fitCount) make() {
	c.reasons = map[string]int{}
	for m, n := range c.diagnose() {
		c.nodes += n
		c.reasons[m.text(c.spec, c.names)] += n
	}
	if c.state != nil {
		c.tooLarge, c.none = c.state.TooLarge(c.spec), c.state.NodeCount() == 0
		if c.rules != nil {
			c.idle = c.state.idleBy(c.rules)
		}
	}
	c.diagnose, c.state, c.spec, c.names, c.refused, c.rules = nil, nil, nil, nil, nil, nil
}
