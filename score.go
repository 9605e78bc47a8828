package orbit

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/orbitsched/orbit/internal/herd"
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

// PlacementEngine is the building block with which a navigator chooses nodes. The body of a simple Plan:
//
//	draft.Sync(view)
//	for _, c := range pending {
//		if err := draft.PlaceBest(engine, c); err != nil {
//			plan.Unplaced = append(plan.Unplaced, Unplaced{c, err})
//			continue
//		}
//		plan.Proposals = append(plan.Proposals, draft.Propose())
//	}
//
// Hard requirements filter, soft forces score, lower is better. Equal values go by tie, and then by a hash of the node
// with the engine's seed, so that navigators with different seeds do not herd onto one node; with seed 0 they go by
// node id. Where the view has parts ([View.Part]), a node in a lower part comes before all nodes in higher ones. Before
// all this, a node that is no last resort ([Draft.LastResort]) comes before all that are. A
// placement engine belongs to one navigator and is not safe for concurrent use. It may keep an index of the nodes of
// the draft that it was last used with, so use each engine with one draft.
type PlacementEngine interface {
	// Best returns the best node of the draft for one capsule of the spec, as the plan leaves the nodes. The error is a
	// *NoFit if no node fits; before the first Sync of the draft none does. Without a draft or a spec the error wraps
	// ErrInvalid.
	Best(draft *Draft, spec *Spec) (Choice, error)
}

// PlaceBest places a capsule on the node that a placement engine finds best. A capsule that must first stop on another
// node is placed only on a node that confirms ([Node.Confirms]): if the best node does not confirm, on the first such
// node on which the capsule fits. The error is the engine's if it finds no node, or that of Place.
func (d *Draft) PlaceBest(engine PlacementEngine, c *Capsule) error {
	if engine == nil || c == nil || c.Spec == nil {
		return invalidf("draft: PlaceBest needs an engine, and a capsule with a spec")
	}
	d.Ask(c)
	choice, err := engine.Best(d, c.Spec)
	if err == nil && c.runsElsewhere() && !choice.Node.Node.Confirms {
		choice = d.confirming(c, choice)
	}
	if err == nil {
		err = d.Place(c, choice)
	}
	d.Ask(nil)
	return err
}

// show replaces a node of the draft by a copy that shows its nominated room as the asker may use it; a nil asker has no
// nomination.
func (d *Draft) show(n *NodeState, asker *Nomination) {
	if asker != nil && d.asked.Add(int32(n.index)) {
		d.askedNodes = append(d.askedNodes, int32(n.index))
	}
	d.replace(n, d.shownTo(n, asker))
}

// shownTo returns a copy of a node whose nominated room is shown as the asker may use it.
func (d *Draft) shownTo(n *NodeState, asker *Nomination) *NodeState {
	shown := d.copies.New(*n)
	shown.nominated = n.nominated.copy()
	shown.nominated.asker = asker
	return shown
}

// Withdraw gives back the room of a capsule that an earlier proposal of the plan places, because that proposal was
// refused, or the capsule has been released since. It is for a caller that goes on with a plan while its proposals are
// answered. It returns false and changes nothing in three cases: no earlier proposal places the capsule; that proposal
// also releases or resizes something, or may have borrowed the room; or the proposal in the making has steps.
func (d *Draft) Withdraw(id CapsuleID) bool {
	use := d.capsules[id]
	if use.what != draftTaken || d.open < len(d.log) {
		return false
	}
	i, _ := slices.BinarySearchFunc(d.steps, use.at, func(s draftStep, at int) int { return s.log - at })
	for d.steps[i].spec == nil { // a step without a commitment, which Propose has noted
		i++
	}
	last := i
	for last+1 < len(d.steps) && d.steps[last+1].open == d.steps[i].open {
		last++
	}
	for _, c := range d.log[d.steps[i].open:d.steps[last].log] {
		_, resizes := c.(Resize)
		if r, ok := c.(Release); ok && r.Hold != "" || leaves(c) != "" || resizes { // the capsule may be in the room that this freed
			return false
		}
	}
	spec, n := d.steps[i].spec, d.nodes[d.steps[i].node.index]
	if spec.Backfills && n.nominated != nil {
		return false
	}
	left := d.copies.New(*n)
	left.gives(spec.Envelope.Reservation, d.log[use.at].(Place).Devices, spec.Devices.Milli)
	left.Capsules--
	s := draftStep{node: n, use: use, log: len(d.log), open: d.open}
	_ = d.moved(&s, id, companyMove{spec, n.Node, 0, -1}) // cannot fail: the proposal in the making has no steps
	d.push(s, left)
	delete(d.capsules, id)
	return true
}

// withdraws reports whether the step is one of Withdraw, for which Rollback restores the use draftTaken. Any other step
// with a node either has a spec (a placement), or restores another use: the one before a hold, or that of a capsule or
// a hold that was untouched before its release.
func (s *draftStep) withdraws() bool {
	return s.node != nil && s.spec == nil && s.use.what == draftTaken
}

// runsElsewhere reports whether a capsule that is placed again may still run on its former node.
func (c *Capsule) runsElsewhere() bool { return c.Remains() != nil || c.Begun }

// confirming returns the first node that confirms and on which a capsule fits, a last resort only if there is no other;
// if there is none, the given choice. It searches all nodes, because placement engines choose for a spec and do not know
// the state of one capsule, and such capsules are few.
func (d *Draft) confirming(c *Capsule, choice Choice) Choice {
	found := false
	for n := range d.Nodes() {
		devices, ok := n.PickDevices(c.Spec)
		if !ok || !n.Node.Confirms || d.Misfit(n, c.Spec) != (Misfit{}) {
			continue
		}
		last := d.LastResort(n, c.Spec)
		if !found || !last {
			choice, found = Choice{Node: n, Devices: devices, Note: choice.Note}, true
		}
		if !last {
			break
		}
	}
	return choice
}

// Part returns the number of the part of the nodes that a node is in, from 0. A placement engine chooses the best node
// of part 0, and looks at the next part only if nothing fits there. While few proposals of the view's engine lose to
// others, there is one part. While many do, there are more, up to 8, by a hash of the nodes' ids. Which part is part 0
// depends on the name of the engine, so engines that would all choose the same best node keep out of each other's way.
// The cost in quality is bounded whatever the score is: with 8 parts the chance that more than k nodes are better than
// the chosen one is (7/8)^(k+1), which is 23% for 10, 2% for 28 and 0.1% for 50.
func (v *View) Part(n *NodeState) int {
	parts, from := v.spread.Ring()
	if parts == 1 {
		return 0
	}
	return herd.Part(parts, from, herd.Hash(string(n.Node.ID)))
}

// Ring returns the number of parts and the hash at which part 0 begins, for a placement engine that keeps an index.
func (v *View) Ring() (parts int, from uint64) { return v.spread.Ring() }

// Passed tells the view how many proposals that were planned on it were sent, and how many of these lost to others.
// From this the view decides on the number of parts ([View.Part]). It is for a caller that plans without an [Engine],
// which calls it after each of its plans.
func (v *View) Passed(proposed, lost int) { v.spread.Passed(proposed, lost) }

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
	// What the answer rests on besides the nodes.
	rest rest
	// The answer holds even if capsules of lower priority are evicted; and a budget has refused such an eviction.
	evicts, kept bool
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

// RestsOn returns the same answer, and records that it rests on the argument by, besides the nodes, their reports and
// the spec: the answer may change as soon as by.Version returns another value than version. It replaces what an earlier
// call has recorded. A class that is parked by this NoFit is then planned again. Engines call Version with their view
// before each pass, and when a change of the ledger may concern a class that they have parked; never while they plan.
// If the version rises at another time, [Engine.Nudge] makes the engine look. Placement engines call RestsOn for
// filters that have a version.
func (e *NoFit) RestsOn(by interface{ Version(view *View) uint64 }, version uint64) *NoFit {
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

// Error reads like "0 of 1213 nodes fit: 801 lack a device with 600 milli free, 412 lack memory". It adds TooLarge and
// Idle, and says if there are no nodes.
func (e *NoFit) Error() string {
	text := fmt.Sprintf("0 of %d nodes fit", e.Nodes())
	if e.Nodes() == 0 && e != nil && e.count != nil && e.count.none {
		text = "there are no nodes"
	}
	if reasons := e.Texts(); len(reasons) > 0 {
		text += ": " + strings.Join(reasons, ", ")
	}
	parts := slices.DeleteFunc([]string{text, e.TooLarge(), e.Idle()}, func(part string) bool { return part == "" })
	return strings.Join(parts, "; ")
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
		return now.diagnose()
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

// Misfit returns the first reason why a node cannot take a capsule of the spec: a rule of the ledger, or company that
// the spec asks for and that the view does not show there. Lasting reasons come first: a label that does not match
// lasts longer than a lack of memory. The zero value means that the node takes it.
func (d *Draft) Misfit(n *NodeState, spec *Spec) Misfit {
	m := d.unruled(n, spec)
	if m == (Misfit{}) {
		m = d.verdictsOn(spec).misfit(n)
	}
	return m
}

// NoFit returns an error made from the number of nodes for each misfit.
func (d *Draft) NoFit(spec *Spec, counts map[Misfit]int) *NoFit {
	c := &fitCount{diagnose: func() map[Misfit]int { return counts }, spec: spec, names: d.names()}
	return &NoFit{count: c.counted()}
}

// Diagnose returns the error for a spec that no node takes. It costs next to nothing until it is read. It then counts
// each node by its Misfit, as the plan leaves the nodes now. Some nodes have no Misfit. Of these it counts those in
// refused for the reasons given there, which cannot be found out later, such as the verdicts of a filter; and all
// others for the reason rest.
//
// If a spec lacks nothing but the company that it asks for, an engine uses this part of the diagnosis: it does not plan
// the class again until members of the group are placed or leave, or a node in their domains offers more.
func (d *Draft) Diagnose(spec *Spec, refused map[Misfit]int, rest Misfit) *NoFit {
	if d.view == nil {
		return &NoFit{}
	}
	if !spec.Shared() {
		spec = spec.clone() // the caller may change it
	}
	near := d.nearby(spec)
	if near != nil {
		near.missing() // computes its text now, before other goroutines may read it
	}
	d.shared = len(d.after)
	state, unleased, after := d.view.state, d.view.unleased, d.after[:d.shared:d.shared]
	rules := d.verdictsOn(spec).snapshot(d)
	return &NoFit{near: near, ruled: rules != nil, count: &fitCount{state: state, spec: spec, names: d.names(), rules: rules, refused: refused, diagnose: func() map[Misfit]int {
		counts := countMisfits(state, unleased, after, spec, near, rules)
		fitting := counts[Misfit{}]
		delete(counts, Misfit{})
		for _, m := range slices.SortedFunc(maps.Keys(refused), func(a, b Misfit) int { return strings.Compare(a.Why, b.Why) }) {
			n := min(refused[m], fitting) // fewer fit if the answer is read later
			counts[m] += n
			fitting -= n
		}
		if fitting > 0 {
			counts[rest] += fitting
		}
		return counts
	}}}
}

// countMisfits counts the nodes of a state by why they cannot take the spec. Unleased has the nodes whose report is
// Expired. After lists the nodes that a plan has changed, as it leaves them, newest last.
func countMisfits(state *State, unleased nodeSet, after []*NodeState, spec *Spec, near *nearby, rules *verdicts) map[Misfit]int {
	planned := map[uint32]*NodeState{}
	for _, n := range after {
		if n != nil {
			planned[n.index] = n
		}
	}
	counts := map[Misfit]int{}
	for n := range state.Nodes() {
		if unleased.has(n.index) && n.Node.Schedulable() {
			counts[Misfit{kind: leaseOver}]++
			continue
		}
		if now := planned[n.index]; now != nil {
			n = now
		}
		m := n.misfit(spec)
		if m == (Misfit{}) {
			m = near.misfit(n)
		}
		if m == (Misfit{}) {
			m = rules.misfit(n)
		}
		counts[m]++
	}
	return counts
}

// names returns the names of the resource dimensions in the ledger.
func (d *Draft) names() *dimensionNames {
	if d.view == nil {
		return &defaultDimensions
	}
	return &d.view.state.names
}

// use records what the next step does with a capsule.
func (d *Draft) use(id CapsuleID, act draftAct) {
	if d.capsules == nil {
		d.capsules = map[CapsuleID]draftUse{}
	}
	d.capsules[id] = draftUse{act, len(d.log)}
}

// takes returns the rule of the ledger that forbids to place a capsule on these instances of a node, as an error; nil:
// none does.
func (d *Draft) takes(c *Capsule, n *NodeState, set DeviceSet) error {
	spec := c.Spec
	if !n.Node.Schedulable() || !n.hasFree(&spec.Envelope.Reservation) || !n.meets(spec) {
		if m := n.misfit(&Spec{Envelope: spec.Envelope, Require: spec.Require, Tolerate: spec.Tolerate}); m != (Misfit{}) {
			return d.refuse(c.ID, n, "node %q cannot take capsule %q; such nodes %s", n.Node.ID, c.ID, m.text(spec, &d.view.state.names))
		}
	}
	r := &spec.Devices
	switch {
	case set == 0 && r.Count == 0:
		return nil
	case set.Len() != r.Count:
		return d.refuse(c.ID, n, "capsule %q asks for %d devices, the choice names %d", c.ID, r.Count, set.Len())
	case !r.Accepts(n.Node.Devices.Model) || set&^n.devicesWith(r.Milli) != 0:
		return d.refuse(c.ID, n, "node %q: devices %016b are not all there, healthy and free", n.Node.ID, set)
	}
	return nil
}
