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

// Score rates a node for a spec: lower is better, and equal values go by tie. It sees the node as it is now
// (with what the plan has reserved), its telemetry report and the shared spec, never the capsule, and it
// must be a pure function of the three: that is what makes equivalence classes and caching exact. A value
// that is NaN or infinite takes the node out of the choice.
//
// A score may also have a method PickDevices(node *NodeState, spec *Spec) (DeviceSet, bool) that chooses the
// device instances; the default is [NodeState.PickDevices]. Package score has ready scores, and the interfaces of a
// score that can bound itself (Bounded), and of one that reads more than its arguments and must say so (Versioned).
//
// A score that draws lots has a method Draw(decision uint64) (Score, bool). It returns the score for one decision,
// and false if it draws none after all. Engines ask for it before every choice, with a number that is another one in
// every view, after every Place, and with every Seed; and rate all nodes with it.
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
// Hard requirements filter, soft forces score, lower is better. Equal values go by tie, and then by a hash
// of the node with the engine's seed, so that navigators with different seeds do not herd onto one node;
// seed 0 goes by node id. Where the view has parts ([View.Part]), those nodes come first that are in a lower one.
// An engine belongs to one navigator and is not safe for concurrent use. It may keep an index of the nodes of the
// draft that it was asked about last: ask one engine about one draft.
type PlacementEngine interface {
	// Best returns the best node of the draft for one capsule of the spec, as the plan leaves the nodes. The error
	// is a *NoFit; before the first Sync of the draft nothing fits. Without a draft or a spec it wraps ErrInvalid.
	Best(draft *Draft, spec *Spec) (Choice, error)
}

// PlaceBest places a capsule on the node that an engine finds best. What has to stop on another node first goes only to a node that
// confirms ([Node.Confirms]): if the best one does not, to the first on which it fits. The error is the engine's if it finds none,
// or that of Place.
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

// show makes a node one that shows its room to an asker.
func (d *Draft) show(n *NodeState, asker *Nomination) {
	if asker != nil && d.asked.Add(int32(n.index)) {
		d.askedNodes = append(d.askedNodes, int32(n.index))
	}
	d.replace(n, d.shownTo(n, asker))
}

func (d *Draft) shownTo(n *NodeState, asker *Nomination) *NodeState {
	shown := d.copies.New(*n)
	shown.nominated = n.nominated.copy()
	shown.nominated.asker = asker
	return shown
}

// Withdraw gives back the room of a capsule that an earlier proposal of the plan places: because that proposal
// has come to nothing, or the capsule has been released since. It is for a caller who goes on with a plan while
// its proposals are answered. It reports false, and changes nothing, where no earlier proposal places the capsule,
// where that one also releases or resizes something or may have borrowed the room, and while the proposal in the making has steps.
func (d *Draft) Withdraw(id CapsuleID) bool {
	use := d.capsules[id]
	if use.what != draftTaken || d.open < len(d.log) {
		return false
	}
	i, _ := slices.BinarySearchFunc(d.steps, use.at, func(s draftStep, at int) int { return s.log - at })
	for d.steps[i].spec == nil { // it takes no commitment, as what Propose notes
		i++
	}
	last := i
	for last+1 < len(d.steps) && d.steps[last+1].open == d.steps[i].open {
		last++
	}
	for _, c := range d.log[d.steps[i].open:d.steps[last].log] {
		_, resizes := c.(Resize)
		if r, ok := c.(Release); ok && r.Hold != "" || leaves(c) != "" || resizes { // the room may be what it took the place of
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
	_ = d.moved(&s, id, companyMove{spec, n.Node, 0, -1}) // it disturbs nothing: nothing is in the making
	d.push(s, left)
	delete(d.capsules, id)
	return true
}

// withdraws reports whether the step is one of Withdraw, whose use is what Rollback restores. Any other step with
// a node places or holds, with the use before that, or releases what was untouched.
func (s *draftStep) withdraws() bool {
	return s.node != nil && s.spec == nil && s.use.what == draftTaken
}

// runsElsewhere reports whether a capsule that is placed anew still runs where it was.
func (c *Capsule) runsElsewhere() bool { return c.Remains != nil || c.Begun }

// confirming returns the first node on which a capsule fits and that confirms; if there is none, the choice. Placement engines
// choose for a spec and do not know what becomes of one capsule of it, and such capsules are few.
func (d *Draft) confirming(c *Capsule, choice Choice) Choice {
	for n := range d.Nodes() {
		if devices, ok := n.PickDevices(c.Spec); ok && n.Node.Confirms && d.Misfit(n, c.Spec) == (Misfit{}) {
			return Choice{Node: n, Devices: devices, Note: choice.Note}
		}
	}
	return choice
}

// Part returns in which part of the nodes this one is, from 0. A placement engine chooses the best node of part 0, and looks
// at the next part only where nothing fits there. While the proposals of the view's engine do not lose to others, there is
// one part. While many do, there are more of them, up to 8, by a hash of the nodes' ids, and part 0 is another one for
// each engine, so that engines which would all choose the best node of all keep out of each other's way. What that costs is
// bounded whatever the score is: with 8 parts the chance that more than k nodes are better than the chosen one is (7/8)^(k+1),
// which is 23% for 10, 2% for 28 and 0.1% for 50.
func (v *View) Part(n *NodeState) int {
	parts, from := v.spread.Ring()
	if parts == 1 {
		return 0
	}
	return herd.Part(parts, from, herd.Hash(string(n.Node.ID)))
}

// Ring returns how many parts there are and where part 0 begins, for a placement engine that keeps an index.
func (v *View) Ring() (parts int, from uint64) { return v.spread.Ring() }

// Passed tells the view how many proposals were sent that were planned on it, and how many of these lost to others. It is for
// a caller that plans without an [Engine], after each of its plans.
func (v *View) Passed(proposed, lost int) { v.spread.Passed(proposed, lost) }

// Choice is where a capsule would go.
type Choice struct {
	// Node is the node as it is before the placement, valid until the draft's next step.
	Node *NodeState
	// Devices are the instances for a spec that asks for devices ([NodeState.PickDevices] chooses them).
	Devices DeviceSet
	// Value and Tie are what the score returned, where lower is better; a draft does not read them.
	Value, Tie float64
	// Note is kept with the placement by Draft.Place, as in "warm"; engines leave it empty.
	Note string
}

// NoFit says why no node takes a capsule. The zero value says it without counts, [Draft.NoFit] makes one of counts, and
// [Draft.Diagnose] one that counts the nodes when it is first read, because most never are. What is read does not
// depend on when: it is about the view that was planned on, less what the plan had given away by then. A NoFit that has
// not been read yet keeps that state in memory. Its methods may be called from any goroutine.
type NoFit struct {
	count *fitCount
	// What the spec asks for by Spec.Near, if a diagnosis has gone by it.
	near *nearby
	// Rules of company may have closed domains to the spec.
	ruled bool
	// What the answer rests on besides the nodes.
	rest rest
}

// RestsOn returns the same answer, and says that it rests on more than the nodes, their reports and the spec: it may be
// another one as soon as by returns another version than this one. A class that is parked by it is planned again then. Engines
// call by with their view before each pass, and when a change of the ledger may concern what they have parked; never
// while they plan. [Engine.Nudge] tells them of a version that rises meanwhile. Placement engines call RestsOn for
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

// boxedVersion makes something comparable.
type boxedVersion struct{ versioned }

// fitCount counts nodes by the reason why they fail.
type fitCount struct {
	once sync.Once
	// How to count; nil: it is done.
	diagnose func() map[Misfit]int
	spec     *Spec
	names    *dimensionNames
	// What was counted.
	nodes   int
	reasons map[string]int
}

// Texts returns each reason with its count, the most frequent first: "801 lack memory", and for one node "1 lacks memory".
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
	e.count.once.Do(e.count.make)
	return e.count.nodes
}

// Reasons returns the nodes counted by the reason why they fail, which completes "n nodes ...", as in "lack memory". Each
// node is counted under the first reason that holds. The map must not be written to.
func (e *NoFit) Reasons() map[string]int {
	if e == nil || e.count == nil {
		return nil
	}
	e.count.once.Do(e.count.make)
	return e.count.reasons
}

// Error reads like "0 of 1213 nodes fit: 801 lack a device with 600 milli free, 412 lack memory".
func (e *NoFit) Error() string {
	if len(e.Reasons()) == 0 {
		return fmt.Sprintf("0 of %d nodes fit", e.Nodes())
	}
	return fmt.Sprintf("0 of %d nodes fit: %s", e.Nodes(), strings.Join(e.Texts(), ", "))
}

// make counts, and gives back what it has counted with.
func (c *fitCount) make() {
	c.reasons = map[string]int{}
	for m, n := range c.diagnose() {
		c.nodes += n
		c.reasons[m.text(c.spec, c.names)] += n
	}
	c.diagnose, c.spec, c.names = nil, nil, nil
}

// Misfit returns the first reason why a node cannot take a capsule of the spec: a rule of the ledger, or company that
// the spec asks for and that the view does not show there. The most lasting reason comes first, because a label does
// not match more often than memory is short. The zero value says that the node takes it.
func (d *Draft) Misfit(n *NodeState, spec *Spec) Misfit {
	m := d.unruled(n, spec)
	if m == (Misfit{}) {
		m = d.verdictsOn(spec).misfit(n)
	}
	return m
}

// NoFit turns nodes counted by their misfit into an error.
func (d *Draft) NoFit(spec *Spec, counts map[Misfit]int) *NoFit {
	c := &fitCount{diagnose: func() map[Misfit]int { return counts }, spec: spec, names: d.names()}
	c.once.Do(c.make)
	return &NoFit{count: c}
}

// Diagnose returns the error for a spec that no node takes, at no cost until it is read. It then counts each node by its
// Misfit, as the plan leaves the nodes now. Of the nodes that have none, it takes those in refused to fail for the
// reasons given there, which nothing can tell later, such as the verdicts of a filter, and all others for the reason
// rest.
//
// Where all that a spec lacks is the company that it asks for, in a diagnosis the engine takes this into account: it does
// not look at the class again until members of the group are placed or leave, or a node in their domains offers more.
func (d *Draft) Diagnose(spec *Spec, refused map[Misfit]int, rest Misfit) *NoFit {
	if d.view == nil {
		return &NoFit{}
	}
	if !spec.Shared() {
		spec = spec.clone() // the caller may change it
	}
	near := d.nearby(spec)
	if near != nil {
		near.missing() // says it once, before others may read it
	}
	d.shared = len(d.after)
	state, unleased, after := d.view.state, d.view.unleased, d.after[:d.shared:d.shared]
	rules := d.verdictsOn(spec).snapshot(d)
	return &NoFit{near: near, ruled: rules != nil, count: &fitCount{spec: spec, names: d.names(), diagnose: func() map[Misfit]int {
		counts := countMisfits(state, unleased, after, spec, near, rules)
		fitting := counts[Misfit{}]
		delete(counts, Misfit{})
		for m, n := range refused {
			counts[m] += n
			fitting -= n
		}
		if fitting > 0 {
			counts[rest] += fitting
		}
		return counts
	}}}
}

// countMisfits counts the nodes of a state by why they cannot take the spec, where unleased are those whose report is Expired,
// and after lists what a plan has made of some of them, newest last.
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

// names returns what the ledger calls the dimensions.
func (d *Draft) names() *dimensionNames {
	if d.view == nil {
		return &defaultDimensions
	}
	return &d.view.state.names
}

// use notes what the next step does with a capsule.
func (d *Draft) use(id CapsuleID, act draftAct) {
	if d.capsules == nil {
		d.capsules = map[CapsuleID]draftUse{}
	}
	d.capsules[id] = draftUse{act, len(d.log)}
}

// takes reports which rule of the ledger stands against a capsule on these instances of a node; nil: none.
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
