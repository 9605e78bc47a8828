package orbit

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/herd"
)

// Report is what a node last reported about itself. It belongs to the soft plane: it may be stale or lost, and nothing
// in it is a promise. The zero value is the report of a node that has reported nothing. The map and the lists of a report
// that a view or telemetry returns are shared by all readers: do not write to them.
type Report struct {
	// Node is the node that reports.
	Node NodeID
	// At is the time of its heartbeat by the node's clock, which may be wrong. It tells which of two reports of a node is
	// the newer, and nothing else.
	At time.Time
	// Received is set by telemetry: when it has received the report, by its own clock. The age of a report counts from
	// then. Zero: the report is stale, if reports can be.
	Received time.Time
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
	// Expired is set by telemetry that keeps leases: the node has no lease, or its lease has run out. A [Draft] treats
	// such a node as one that takes no new work, and so does every navigator that plans on a draft.
	Expired bool
	// Stale is set by a view with a bound on the age of reports: this report is older than the bound, or the node has
	// reported nothing.
	Stale bool
}

// Telemetry is the source of the reports in a view. Its methods may be called from any goroutine. It may also have a
// method Wait(ctx context.Context, after uint64) error, which returns nil as soon as the version differs from after, or
// the context's error. With Wait a report at once wakes the engines whose work it may help; without it they see the
// report after their backoff.
type Telemetry interface {
	// Reports returns the newest report of every node whose report has changed after the version, in more than its
	// heartbeat; and the version to ask with next time. Nil: nothing new. A node of which a report is received after more
	// than StaleAfter without one counts as changed.
	Reports(ctx context.Context, after uint64) (reports []Report, version uint64, err error)
	// Latest returns the newest report of a node, with its newest heartbeat; false: the node has reported nothing.
	Latest(node NodeID) (Report, bool)
	// StaleAfter is the age at which a report becomes stale; zero: never.
	StaleAfter() time.Duration
}

// View is what a pass plans on: the ledger's state at one revision, joined with telemetry at one instant. The engine
// that owns a view refreshes it between passes, which costs as much as has changed. During a Plan the view does not
// change. Read it, never write it.
type View struct {
	state *State
	now   time.Time
	// The version of the telemetry that the view has.
	version uint64
	// By node index; nil without telemetry.
	reports []reportEntry
	// The nodes whose report is Expired. While unleasedKept is true, a diagnosis made before this refresh may share the
	// set, so it is copied before it is written to.
	unleased     nodeSet
	unleasedKept bool
	// When a heartbeat of each scheduled node was received, no later than its last one; oldest first.
	fresh   ageHeap
	changed changeLog
	// The pending work of the engine that owns the view, and the ends of holds and protections that it has to propose.
	queue queue
	ends  endHeap
	// The ends that this engine has proposed and that may not be committed yet.
	ending []roomEnd
	// Slots of nodes that may no longer serve what is nominated there.
	suspect map[uint32]bool
	spread  herd.Spread
	// The capsules that may have failed within the last five minutes, and the nodes on which they have, by index.
	failed  map[CapsuleID]bool
	failing map[uint32]*NodeStarts
	// The nodes that capsules have left which still run there, by index.
	stopping map[uint32]bool
	// The turns that a navigator has set for the one that it wraps; nil: it has set none.
	turns map[CapsuleID]int32
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

// Report returns the last report of a node. It returns the zero report if there is no telemetry, and a stale one if the
// node has reported nothing. The report must not be written to.
func (v *View) Report(n *NodeState) *Report {
	if n == nil || int(n.index) >= len(v.reports) {
		return &noReport
	}
	return &v.reports[n.index].Report
}

// Changed returns the indices ([NodeState.Index]) of the nodes that joined, changed, left or reported something new
// since an earlier call returned the cursor. An index may be listed twice. A new index is listed even if its node has
// left again, so a table that is extended to each listed index covers all indices below [State.NodeBound]. All reports
// that everything may have changed, because the cursor is 0 or too old.
func (v *View) Changed(cursor uint64) (indices []int32, next uint64, all bool) {
	return v.changed.since(cursor)
}

// Refresh brings a view up to date for a caller that plans without an [Engine]. The zero View is ready for it.
// Telemetry may be nil; ledger and telemetry must be the same in every call. An error of the ledger leaves the view as
// it was; an error of telemetry leaves it with the new state and the old reports. Nothing else may use the view during
// the call.
func (v *View) Refresh(ctx context.Context, ledger Ledger, telemetry Telemetry, now time.Time) error {
	_, err := v.refresh(ctx, &source{ledger: ledger, telemetry: telemetry, owns: none}, now)
	return err
}

// none owns no work, so a view that is refreshed with it has an empty queue.
func none(string, *Spec) bool { return false }

// source is what a view is refreshed from, and whose work its queue has.
type source struct {
	ledger Ledger
	// May be nil.
	telemetry Telemetry
	// Reports whether pending work with this owner and spec belongs in the view's queue.
	owns  func(owner string, spec *Spec) bool
	holds bool // the owner of the view ends holds and protections whose time has passed
	// Reports whether the owner of the view made the proposal with this id; nil: it makes none.
	made func(ProposalID) bool
}

// refresh brings the view up to the instant now. It reports whether there is new work, or new room for parked work,
// also when it returns an error. An error of the ledger leaves the view as it was; an error of telemetry leaves it with
// the new state and the old reports.
func (v *View) refresh(ctx context.Context, from *source, now time.Time) (woken bool, err error) {
	state, news, whole, err := v.state.catchUp(ctx, from.ledger)
	if err != nil {
		return false, err
	}
	v.now, v.queue.now, v.unleasedKept, v.turns = now, instantOf(now), true, nil
	switch {
	case whole:
		woken = v.rebuild(state, from)
	case state != v.state:
		woken = v.advance(state, news, from)
	}
	woken = v.queue.admitDelayed() || woken
	v.countFailing()
	reported, err := v.refreshTelemetry(ctx, from, now)
	return woken || reported, err
}

// rebuild moves to a state of which the changes since the view's own are not known. If the view has an older state of
// the same ledger, rebuild looks only at the work that the queue had and at the records that differ between the two
// states. So it stays cheap, however often an engine falls behind busy other engines.
func (v *View) rebuild(state *State, from *source) bool {
	old, had := v.state, v.queue.slots()
	if old == nil || old.shared != state.shared {
		old, had = &State{}, nil
		v.changed.overflow()
		v.reports, v.fresh, v.unleased, v.stopping, v.failed = nil, nil, nil, nil, nil
	}
	v.state = state
	v.queue.clear(state)
	file := func(slot uint32, c *Capsule) bool {
		v.noteFailed(c.ID)
		if c.ID != "" && c.Pending() && from.owns(c.Owner(), c.Spec) {
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

// followNodes takes over the nodes that differ from those in an older state of the same ledger. It compares the states
// and does not read the changes, because most nodes change many times while an engine plans.
func (v *View) followNodes(old *State, from *source) {
	state := v.state
	state.nodes.Diff(&old.nodes, func(slot uint32, was, now *nodeRecord) bool {
		if was.node != now.node {
			v.changed.add(slot)
			if was.node.remains != now.node.remains {
				v.noteStopping(&now.node, slot)
			}
			if was.node.Node != now.node.Node { // the description differs, perhaps only as this ledger shows it
				v.suspectNode(&now.node)
			}
			if from.telemetry != nil && now.node.Node != nil && now.node.Specification > old.rev {
				v.join(&now.node, from.telemetry)
			}
		}
		return true
	})
	for slot := old.nodes.Bound(); slot < state.nodes.Bound(); slot++ {
		if state.nodes.At(slot).node.Node == nil { // a node has joined here and left again
			v.changed.add(slot)
		}
	}
}

// noteFailed notes that a capsule may have failed.
func (v *View) noteFailed(id CapsuleID) {
	if v.state.failuresOf(id) == nil {
		return
	}
	if v.failed == nil {
		v.failed = map[CapsuleID]bool{}
	}
	v.failed[id] = true
}

// countFailing counts the starts on the nodes on which some have failed lately, and forgets older failures.
func (v *View) countFailing() {
	if v.failing = nil; len(v.failed) == 0 {
		return
	}
	v.failing = v.state.starts(v.queue.now, func(yield func(failureRecord) bool) {
		for id := range v.failed {
			f := v.state.failuresOf(id)
			if f == nil || !slices.ContainsFunc(f.Nodes, func(at NodeFailure) bool { return v.queue.now < at.At+Instant(mostAvoided) }) {
				delete(v.failed, id)
				continue
			}
			yield(failureRecord{id, f})
		}
	})
}

// noteStopping notes whether capsules that have left a node still run there.
func (v *View) noteStopping(n *NodeState, slot uint32) {
	switch {
	case n.remains == nil:
		delete(v.stopping, slot)
	case v.stopping == nil:
		v.stopping = map[uint32]bool{slot: true}
	default:
		v.stopping[slot] = true
	}
}

// advance moves to a newer state by the changes in between. It reports whether there is new work, or new room for
// parked work.
func (v *View) advance(state *State, news span, from *source) (woken bool) {
	old := v.state
	v.state = state
	v.followNodes(old, from)
	placesMatter := len(v.queue.parked.spots)+len(v.queue.parked.waiting) > 0 || old.nominations.Len() > 0
	v.queue.state, v.queue.former = state, old
	defer func() { v.queue.own, v.queue.former = false, nil }()
	for c := range news.all {
		if news.parts == nil { // not a MemoryLedger: it may show a node otherwise than its record, and names such nodes in its changes
			if n := state.Node(c.Node); n != nil {
				v.changed.add(n.index)
				v.suspectNode(n)
			}
		}
		if _, ok := c.Do.(Place); ok && !placesMatter {
			continue
		}
		if release, ok := c.Do.(Release); ok && (release.Stopped || !release.Final) {
			v.noteFailed(release.Capsule)
		}
		v.queue.own = from.made != nil && from.made(c.ID)
		woken = v.queue.absorb(c, state, from.owns) || woken
		woken = v.touchNominated(c, old) || woken
		if from.holds {
			v.foresee(c)
		}
	}
	if len(v.ends) > 2*(state.holds.Len()+state.protected.Len()+state.nominations.Len())+64 { // most entries are void: they ended early
		v.findEnds(from)
	}
	return woken
}

// changeLog is the list of changed node indices that drafts read, each from its own cursor. Only a window of the
// endless list is kept.
type changeLog struct {
	window []int32
	// Position of window[0], at least 1.
	base uint64
}

// changeWindow is the length at which the older half of the window is dropped.
const changeWindow = 1 << 17

// add appends an index. If the window is full, it first drops the older half.
func (l *changeLog) add(slot uint32) {
	l.base = max(l.base, 1)
	if len(l.window) >= changeWindow {
		l.base += changeWindow / 2
		l.window = append(l.window[:0], l.window[changeWindow/2:]...)
	}
	l.window = append(l.window, int32(slot))
}

// overflow makes all cursors too old, so that every reader starts anew.
func (l *changeLog) overflow() {
	l.base = max(l.base, 1) + uint64(len(l.window)) + 1
	l.window = l.window[:0]
}

// since returns the indices that were added after a cursor; all is true if the window does not reach back that far.
func (l *changeLog) since(cursor uint64) (indices []int32, next uint64, all bool) {
	next = l.base + uint64(len(l.window))
	if cursor < l.base || cursor > next { // a cursor beyond the end is from another log
		return nil, next, true
	}
	return l.window[cursor-l.base:], next, false
}

// reportEntry is a node's report in a view, and when it is checked for its age.
type reportEntry struct {
	Report
	// scheduled: the heap of heartbeats has an entry for this node, with the time due. Other entries for it are void.
	scheduled bool
	due       time.Time
}

// refreshTelemetry stores new reports and marks those that have become stale. It reports whether parked work may fit
// now.
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

// planned returns the node with an index as planners see it; nil: there is none. A node whose report is Expired is
// shown as cordoned, so it takes no new work.
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

// leaseOver reports whether a node takes no new work only because its report is Expired.
func (v *View) leaseOver(n *NodeState) bool {
	return v != nil && v.unleased.has(n.index) && v.state.NodeByIndex(int(n.index)).Node.Schedulable()
}

// nodeSet is a set of node indices, one bit for each.
type nodeSet []uint64

func (b nodeSet) has(i uint32) bool { return int(i/64) < len(b) && b[i/64]>>(i%64)&1 == 1 }

// setUnleased records whether the report of a node is Expired. It copies the set first if a diagnosis may share it.
func (v *View) setUnleased(i uint32, on bool) {
	if v.unleased.has(i) == on {
		return
	}
	if n := int(i/64) + 1 - len(v.unleased); n > 0 || v.unleasedKept {
		v.unleased, v.unleasedKept = append(slices.Clone(v.unleased), make(nodeSet, max(0, n))...), false
	}
	v.unleased[i/64] ^= 1 << (i % 64)
}

// makeRoom extends reports to hold all node indices below a bound.
func (v *View) makeRoom(bound int) {
	if n := bound - len(v.reports); n > 0 {
		v.reports = append(v.reports, make([]reportEntry, n)...)
	}
}

// join stores the latest report of a node that telemetry has, or a stale one if there is none.
func (v *View) join(n *NodeState, telemetry Telemetry) {
	v.makeRoom(int(n.index) + 1)
	report, _ := telemetry.Latest(n.Node.ID)
	report.Node = n.Node.ID
	v.setReport(n, report, telemetry.StaleAfter())
}

// setReport stores the report of a node, marks the node as changed and schedules when the report becomes stale.
func (v *View) setReport(n *NodeState, r Report, bound time.Duration) {
	r.Stale = bound > 0 && !v.now.Before(r.Received.Add(bound))
	v.reports[n.index].Report = r
	v.setUnleased(n.index, r.Expired)
	v.changed.add(n.index)
	v.scheduleExpiry(n.index, bound)
}

// waiting yields what [State.Waiting] yields, in no particular order; it looks only at nodes with remains.
func (v *View) waiting(yield func(*Capsule, *Remains) bool) {
	for index := range v.stopping {
		if !v.state.waitingFor(v.state.NodeByIndex(int(index)), yield) {
			return
		}
	}
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

// Parts returns the number of parts and the hash at which part 0 begins, for a placement engine that keeps an index.
func (v *View) Parts() (parts int, from uint64) { return v.spread.Ring() }

// NoteOutcomes tells the view how many proposals that were planned on it were sent, and how many of these lost to others.
// From this the view decides on the number of parts ([View.Part]). It is for a caller that plans without an [Engine],
// which calls it after each of its plans.
func (v *View) NoteOutcomes(proposed, lost int) { v.spread.Passed(proposed, lost) }

// Diff is the difference between two states of one ledger. Each of its methods compares anew, and may be called from
// any goroutine. A record that was changed and changed back may be yielded or not. The zero value is no difference.
type Diff struct{ was, now *State }

// noState is an empty state.
var noState State

// states returns the two states, an empty one for nil.
func (d Diff) states() (was, now *State) { return cmp.Or(d.was, &noState), cmp.Or(d.now, &noState) }

// Nodes yields the nodes that differ: in their description, in what is used of them, or in the capsules that have left
// them and still run there. It yields each as it was and as it is; nil: the node was not, or is no longer, a member.
func (d Diff) Nodes() iter.Seq2[*NodeState, *NodeState] {
	old, now := d.states()
	return func(yield func(*NodeState, *NodeState) bool) {
		now.nodes.Diff(&old.nodes, func(_ uint32, was, is *nodeRecord) bool {
			if n := &is.node; n.Node != nil {
				before := old.Node(n.Node.ID)
				if (before == nil || !n.same(before)) && !yield(before, n) {
					return false
				}
			}
			return was.node.Node == nil || now.Node(was.node.Node.ID) != nil || yield(&was.node, nil)
		})
	}
}

// NodeIndices yields, in order, the indices ([NodeState.Index]) under which the two states have different nodes, or only
// one of them has a node. Two states that have come from a third by different changes ([State.Apply]) may have one node
// under two indices; both are yielded then.
func (d Diff) NodeIndices() iter.Seq[int] {
	old, now := d.states()
	return func(yield func(int) bool) {
		now.nodes.Diff(&old.nodes, func(slot uint32, was, is *nodeRecord) bool {
			return was.node == is.node || yield(int(slot))
		})
	}
}

// Capsules yields the capsules that differ, each as it was and as it is; nil: there was, or is, no record of the
// capsule.
func (d Diff) Capsules() iter.Seq2[*Capsule, *Capsule] {
	old, now := d.states()
	return func(yield func(*Capsule, *Capsule) bool) {
		now.capsules.Diff(&old.capsules, func(_ uint32, was, is *capsuleRecord) bool {
			if c := &is.capsule; c.ID != "" {
				before := old.Capsule(c.ID)
				same := before != nil && before.Changed == c.Changed && before.Submitted == c.Submitted && c.Remains().same(before.Remains()) && c.Surge().same(before.Surge())
				if !same && !yield(before, c) {
					return false
				}
			}
			return was.capsule.ID == "" || now.Capsule(was.capsule.ID) != nil || yield(&was.capsule, nil)
		})
	}
}

// Diff returns the difference of s from another state of the same ledger. That state may be older or newer, and may
// come from another process; nil stands for an empty one. If the two states share structure, as the states that one
// ledger returns do, a comparison costs as much as was written in between.
func (s *State) Diff(from *State) Diff { return Diff{from, s} }
