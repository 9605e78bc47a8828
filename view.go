package orbit

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/herd"
)

// Report is what a node last said of itself: the soft plane. It may be stale or lost, and nothing in it is
// a promise. The zero value is the report of a node that has said nothing.
type Report struct {
	// Node is the node that reports.
	Node NodeID
	// At is the time of its heartbeat.
	At time.Time
	// Usage is the measured use of each resource.
	Usage Resources
	// CPUPercent is the load, in percent of the whole machine.
	CPUPercent float64
	// FreeSlots is the number of free sandbox slots.
	FreeSlots int
	// Warm is the number of warm slots for each template.
	Warm map[string]int
	// Templates are the templates that the node supports.
	Templates []string
	// Volumes are the volumes that the node has on disk.
	Volumes []string
	// Term is the epoch of the lease under which the node reports; 0: none.
	Term Revision
	// Expired is set by telemetry that keeps leases: the node has no lease, or its lease has run out. A [Draft] takes it
	// for a node that takes no new work, and so does every navigator that plans on one.
	Expired bool
	// Stale is set by a view with a bound on the age of reports: this one is older than the bound, or was never made.
	Stale bool
}

// Telemetry is where a view gets reports from. Its methods may be called from any goroutine. It may also have a method
// Wait(ctx context.Context, after uint64) error, which returns nil as soon as its version is another one than after, or the
// context's error: then a report wakes engines at once with work that waits for it, and else after their back-off.
type Telemetry interface {
	// Reports returns the newest report of every node whose report has changed, in more than its
	// heartbeat, after the version; and the version to ask from next time. Nil: nothing new. A node that is
	// reported of again after StaleAfter without a heartbeat counts as changed.
	Reports(ctx context.Context, after uint64) (reports []Report, version uint64, err error)
	// Latest returns the newest report of a node, the newest heartbeat included.
	Latest(node NodeID) (Report, bool)
	// StaleAfter is the age from which on a report is stale; zero: never.
	StaleAfter() time.Duration
}

// View is what a pass plans on: the ledger's state at one revision, joined with telemetry at one instant.
// The engine that owns it brings it up to date between passes, at the cost of what has changed; during a
// Plan it stands still. Read it, never write it.
type View struct {
	state *State
	now   time.Time
	// Of the telemetry.
	version uint64
	// By node index; nil without telemetry.
	reports []reportEntry
	// The nodes whose report is Expired. What was diagnosed before this refresh refers to it, if it is kept.
	unleased     nodeSet
	unleasedKept bool
	// One heartbeat of every scheduled node, no newer than its last, oldest first.
	fresh   ageHeap
	changed changeLog
	// Pending work of the engine that owns the view.
	queue queue
	ends  endHeap
	// What this engine has proposed to end.
	ending []roomEnd
	// Slots of nodes that may no longer serve what is nominated there.
	suspect map[uint32]bool
	spread  herd.Spread
}

// State returns the ledger's state that the view shows; nil before the first refresh.
func (v *View) State() *State { return v.state }

// Revision returns the revision of that state; 0 before the first refresh.
func (v *View) Revision() Revision {
	if v.state == nil {
		return 0
	}
	return v.state.rev
}

// Now returns the instant at which telemetry was joined.
func (v *View) Now() time.Time { return v.now }

var noReport Report

// Report returns what a node last said of itself: the zero report if there is no telemetry, a stale one if
// the node has said nothing. It must not be written to.
func (v *View) Report(n *NodeState) *Report {
	if int(n.index) >= len(v.reports) {
		return &noReport
	}
	return &v.reports[n.index].Report
}

// Changed returns the indices ([NodeState.Index]) of nodes that joined, changed, left or reported something new
// since the cursor that an earlier call returned; some may be named twice. An index that is new is named even
// if its node has left again, so that a table which takes in what is named reaches up to [State.NodeBound]. All
// means that everything may have changed: the cursor is 0, or too old.
func (v *View) Changed(cursor uint64) (indices []int32, next uint64, all bool) {
	return v.changed.since(cursor)
}

// Refresh brings a view up to date for a caller that plans without an [Engine]; the zero View is ready for it. Telemetry may
// be nil, and both must be the same in every call. An error of the ledger leaves the view as it was; one of telemetry
// leaves it with the new state and the old reports. Nothing else may use the view meanwhile.
func (v *View) Refresh(ctx context.Context, ledger Ledger, telemetry Telemetry, now time.Time) error {
	_, err := v.refresh(ctx, &source{ledger: ledger, telemetry: telemetry, owns: none}, now)
	return err
}

// none owns no work: a view refreshed with it has an empty queue.
func none(string, *Spec) bool { return false }

// source is the ledger and telemetry that a view is refreshed from.
type source struct {
	ledger Ledger
	// May be nil.
	telemetry Telemetry
	// Reports whether pending work with this owner and spec is the view's owner's.
	owns  func(owner string, spec *Spec) bool
	holds bool // the owner of the view ends holds and protections whose time has passed
	// Reports whether a proposal was the owner's; nil: none was.
	made func(ProposalID) bool
}

// refresh brings the view up to now. It reports whether there is new work or new room for parked work, also
// when it returns an error: one of the ledger leaves the view as it was, one of telemetry leaves it with the
// new state and the old reports.
func (v *View) refresh(ctx context.Context, from *source, now time.Time) (woken bool, err error) {
	state, news, whole, err := v.state.catchUp(ctx, from.ledger)
	if err != nil {
		return false, err
	}
	v.now, v.queue.now, v.unleasedKept = now, instantOf(now), true
	switch {
	case whole:
		woken = v.rebuild(state, from)
	case state != v.state:
		woken = v.advance(state, news, from)
	}
	reported, err := v.refreshTelemetry(ctx, from, now)
	return woken || reported, err
}

// rebuild moves to a state without knowing its changes. What the view has of an older state of the same ledger it keeps: then the
// work that it had and the records that differ are all it looks at, however often an engine is left behind by busy others.
func (v *View) rebuild(state *State, from *source) bool {
	old, had := v.state, v.queue.slots()
	if old == nil || old.shared != state.shared {
		old, had = &State{}, nil
		v.changed.overflow()
		v.reports, v.fresh, v.unleased = nil, nil, nil
	}
	v.state = state
	v.queue.clear(state)
	file := func(slot uint32, c *Capsule) bool {
		if c.ID != "" && c.Pending() && from.owns(c.Owner, c.Spec) {
			v.queue.push(slot, c)
			v.queue.roused = true
		}
		return true
	}
	for _, slot := range had {
		file(slot, &state.capsules.At(slot).capsule)
	}
	state.capsules.Diff(&old.capsules, func(slot uint32, _, now *capsuleRecord) bool { return file(slot, &now.capsule) })
	v.suspectAll()
	v.findEnds(from)
	v.followNodes(old, from)
	return true
}

// followNodes takes in the nodes that differ from those of an older state of the same ledger. Most nodes change many times while
// an engine plans, so this takes less time than to read the changes.
func (v *View) followNodes(old *State, from *source) {
	state := v.state
	state.nodes.Diff(&old.nodes, func(slot uint32, was, now *nodeRecord) bool {
		if was.node != now.node {
			v.changed.add(slot)
			if was.node.Node != now.node.Node { // it is described otherwise, if only in the states of a ledger that closes nodes
				v.suspectNode(&now.node)
			}
			if from.telemetry != nil && now.node.Node != nil && now.node.Specification > old.rev {
				v.join(&now.node, from.telemetry)
			}
		}
		return true
	})
	for slot := old.nodes.Bound(); slot < state.nodes.Bound(); slot++ {
		if state.nodes.At(slot).node.Node == nil { // its node has joined and left again
			v.changed.add(slot)
		}
	}
}

// advance moves to a newer state by the changes in between.
func (v *View) advance(state *State, news span, from *source) (woken bool) {
	old := v.state
	v.state = state
	v.followNodes(old, from)
	placesMatter := len(v.queue.parked.spots)+len(v.queue.parked.waiting) > 0 || old.nominations.Len() > 0
	v.queue.state = state
	defer func() { v.queue.own = false }()
	for c := range news.all {
		if news.part == nil { // of a ledger that may show a node otherwise than its record says, and names it here
			if n := state.Node(c.Node); n != nil {
				v.changed.add(n.index)
				v.suspectNode(n)
			}
		}
		if _, ok := c.Do.(Place); ok && !placesMatter {
			continue
		}
		v.queue.own = from.made != nil && from.made(c.ID)
		woken = v.queue.absorb(c, state, from.owns) || woken
		woken = v.touchNominated(c, old) || woken
		if from.holds {
			v.foresee(c)
		}
	}
	if len(v.ends) > 2*(state.holds.Len()+state.protected.Len())+64 { // most have ended before their time
		v.findEnds(from)
	}
	return woken
}

// changeLog is what engines read to learn which nodes changed: a window on an endless list of indices.
type changeLog struct {
	window []int32
	// Position of window[0], at least 1.
	base uint64
}

// The window is cut in half when it reaches this.
const changeWindow = 1 << 17

// add appends an index, forgetting the older half of the window when it is full.
func (l *changeLog) add(slot uint32) {
	l.base = max(l.base, 1)
	if len(l.window) >= changeWindow {
		l.base += changeWindow / 2
		l.window = append(l.window[:0], l.window[changeWindow/2:]...)
	}
	l.window = append(l.window, int32(slot))
}

// overflow makes all cursors too old.
func (l *changeLog) overflow() {
	l.base = max(l.base, 1) + uint64(len(l.window)) + 1
	l.window = l.window[:0]
}

// since returns what was added after a cursor, and all if the window does not reach back that far.
func (l *changeLog) since(cursor uint64) (indices []int32, next uint64, all bool) {
	next = l.base + uint64(len(l.window))
	if cursor < l.base || cursor > next { // the second is a cursor of another log
		return nil, next, true
	}
	return l.window[cursor-l.base:], next, false
}

// reportEntry is a node's report in a view.
type reportEntry struct {
	Report
	// The heap of heartbeats has an entry for it, at due. Other entries for it are void.
	scheduled bool
	due       time.Time
}

// refreshTelemetry stores new reports and marks those that have crossed the staleness bound. It reports whether parked
// work may fit now.
func (v *View) refreshTelemetry(ctx context.Context, from *source, now time.Time) (woken bool, err error) {
	if from.telemetry == nil {
		return false, nil
	}
	reports, version, err := from.telemetry.Reports(ctx, v.version)
	if err != nil {
		return false, err
	}
	v.version = version
	v.makeRoom(v.state.NodeBound())
	bound := from.telemetry.StaleAfter()
	for i := range reports {
		if n := v.state.Node(reports[i].Node); n != nil {
			v.setReport(n, reports[i], bound)
			woken = v.queue.offer(n) || woken
		}
	}
	v.queue.roused = v.queue.roused || woken
	v.expire(from.telemetry, bound, now)
	return woken, nil
}

// planned returns the node with an index for planning, nil if there is none: if its report is Expired it takes no new work.
func (v *View) planned(i int) *NodeState {
	n := v.state.NodeByIndex(i)
	if n == nil || !v.unleased.has(n.index) || !n.Node.Schedulable() {
		return n
	}
	closed, description := *n, *n.Node
	description.State = Cordoned
	closed.Node = &description
	return &closed
}

// leaseOver reports whether nothing but its Expired report keeps new work from a node.
func (v *View) leaseOver(n *NodeState) bool {
	return v != nil && v.unleased.has(n.index) && v.state.NodeByIndex(int(n.index)).Node.Schedulable()
}

// nodeSet is a set of node indices, one bit for each.
type nodeSet []uint64

func (b nodeSet) has(i uint32) bool { return int(i/64) < len(b) && b[i/64]>>(i%64)&1 == 1 }

// setUnleased notes whether the report of a node is Expired.
func (v *View) setUnleased(i uint32, on bool) {
	if v.unleased.has(i) == on {
		return
	}
	if n := int(i/64) + 1 - len(v.unleased); n > 0 || v.unleasedKept {
		v.unleased, v.unleasedKept = append(slices.Clone(v.unleased), make(nodeSet, max(0, n))...), false
	}
	v.unleased[i/64] ^= 1 << (i % 64)
}

// makeRoom extends reports to hold node indices below a bound.
func (v *View) makeRoom(bound int) {
	if n := bound - len(v.reports); n > 0 {
		v.reports = append(v.reports, make([]reportEntry, n)...)
	}
}

// join gives a node the report that telemetry has of it, or a stale one.
func (v *View) join(n *NodeState, telemetry Telemetry) {
	v.makeRoom(int(n.index) + 1)
	report, _ := telemetry.Latest(n.Node.ID)
	report.Node = n.Node.ID
	v.setReport(n, report, telemetry.StaleAfter())
}

// setReport stores a report and schedules when it becomes stale.
func (v *View) setReport(n *NodeState, r Report, bound time.Duration) {
	r.Stale = bound > 0 && !v.now.Before(r.At.Add(bound))
	v.reports[n.index].Report = r
	v.setUnleased(n.index, r.Expired)
	v.changed.add(n.index)
	v.scheduleExpiry(n.index, bound)
}

// Diff is what differs between two states of one ledger: each of its methods compares anew, and may be called from any
// goroutine. What was changed and changed back may be left out or not.
type Diff struct{ was, now *State }

// Diff returns what differs in s from another state of the same ledger, which is older or newer, made by the same process or
// not. If the two share structure, as states that one ledger returns do, to look costs what was written in between.
func (s *State) Diff(from *State) Diff { return Diff{from, s} }

// Nodes yields the nodes that differ in their description, in what is used of them, or in what has left them and still runs, as they
// were and as they are; nil: the node was, or is, no member.
func (d Diff) Nodes() iter.Seq2[*NodeState, *NodeState] {
	return func(yield func(*NodeState, *NodeState) bool) {
		d.now.nodes.Diff(&d.was.nodes, func(_ uint32, was, now *nodeRecord) bool {
			if n := &now.node; n.Node != nil {
				before := d.was.Node(n.Node.ID)
				if (before == nil || !n.same(before)) && !yield(before, n) {
					return false
				}
			}
			return was.node.Node == nil || d.now.Node(was.node.Node.ID) != nil || yield(&was.node, nil)
		})
	}
}

// Capsules yields the capsules that differ, as they were and as they are; nil: there was, or is, no record of the capsule.
func (d Diff) Capsules() iter.Seq2[*Capsule, *Capsule] {
	return func(yield func(*Capsule, *Capsule) bool) {
		d.now.capsules.Diff(&d.was.capsules, func(_ uint32, was, now *capsuleRecord) bool {
			if c := &now.capsule; c.ID != "" {
				before := d.was.Capsule(c.ID)
				same := before != nil && before.Changed == c.Changed && before.Submitted == c.Submitted && c.Remains.same(before.Remains)
				if !same && !yield(before, c) {
					return false
				}
			}
			return was.capsule.ID == "" || d.now.Capsule(was.capsule.ID) != nil || yield(&was.capsule, nil)
		})
	}
}
