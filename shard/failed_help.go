package shard

import (
	"cmp"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// This file decides which failed marks are cleared after a change of nodes. A mark is cleared for free capacity: a node
// takes more capsules of a class than before, because it joined, grew, was changed or lost capsules; or the node now
// belongs to a scheduler that had failed the class. The number of units that are cleared is the number that the new
// capacity is enough for, in turn, so that all of them can be placed. The cost is the number of changed nodes times the
// number of failing classes, however many capsules are pending.
//
// A failure names the revision of the view that it rests on. A change that the scheduler had seen does not clear it; a
// change between that view and the commit of the mark does. Reports of nodes (which are not in the ledger) and capsules
// that a spec wants to be near are not compared: only the dispatcher's retries help there.

// maxRoom is the number at which counting a node's free places stops.
const maxRoom = 1024

// roomFor returns how many capsules of the spec a node takes, at most maxRoom.
func roomFor(n *orbit.NodeState, spec *orbit.Spec) int {
	if n == nil || !n.Fits(spec) {
		return 0
	}
	room, free := int64(maxRoom), n.Free()
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			room = min(room, free[d]/want)
		}
	}
	if r := &spec.Devices; r.Count > 0 {
		pieces := 0
		for i := range n.Node.Devices.Count {
			pieces += n.DeviceFree(i) / r.Milli
		}
		room = min(room, int64(pieces/r.Count))
	}
	return max(int(room), 1) // Fits has said that there is room for one
}

// change is a node that may take more than before.
type change struct {
	node orbit.NodeID
	// at is the revision of the node's latest change.
	at orbit.Revision
	// moved says that the node belongs to another scheduler now.
	moved bool
}

// help clears failed marks because of changes between two states; before is nil if the older one is not known.
func (d *Dispatcher) help(changes []change, before *orbit.State) {
	for _, k := range d.failing.classes {
		for _, c := range changes {
			d.helpClass(k, c, before)
		}
	}
}

// helpClass clears failures of one class, as many as one changed node has new places for.
func (d *Dispatcher) helpClass(k *failingClass, c change, before *orbit.State) {
	room := roomFor(d.state.Node(c.node), k.spec)
	if room > 0 && before != nil && !c.moved {
		room -= roomFor(before.Node(c.node), k.spec)
	}
	if room <= 0 {
		return
	}
	for _, name := range d.helped(c.node) {
		d.helpLine(k.queues[name], name, c.at, room)
	}
}

// maxPassed is how many units of a queue one changed node skips at most because they must not be cleared again so soon.
// It bounds the cost of a queue in which all units were cleared in vain.
const maxPassed = 64

// helpLine clears as many units of a queue as there is room for, in turn. It skips units that must not be cleared again
// so soon.
func (d *Dispatcher) helpLine(q *lineup, name string, at orbit.Revision, room int) {
	for looked, passed := 0, 0; looked < q.len() && looked-passed < room && passed < maxPassed; looked++ {
		if f := q.next(); f.restsBefore(name, at) && !d.clear(f, name) {
			passed++
		}
	}
}

// helped returns the names of the queues that free capacity on a node can help: "", and in strict mode the owner of the
// node.
func (d *Dispatcher) helped(node orbit.NodeID) []string {
	if d.Strict {
		if group, _ := d.state.Mark(groupMark.key(string(node))); group != "" {
			return []string{group, ""}
		}
	}
	return []string{""}
}

func (q *lineup) len() int {
	if q == nil {
		return 0
	}
	return len(q.at)
}

// restsBefore reports whether the failure of that scheduler ("": of any) rests on a view before the revision.
func (f *failing) restsBefore(name string, at orbit.Revision) bool {
	for _, one := range f.failures.list {
		if (name == "" || one.Scheduler == name) && one.View < at {
			return true
		}
	}
	return len(f.failures.list) == 0
}

// clear plans the write that clears a unit's failures, all of them if name is "", else the failure of that scheduler.
// It reports false, and plans nothing, if the failure was cleared so often in vain that its delay has not passed yet.
func (d *Dispatcher) clear(f *failing, name string) bool {
	kind := f.unit.failedMark()
	key := kind.key(f.unit.id)
	left := f.failures
	if planned, ok := d.marks.writes[key]; ok { // a change of another node has cleared part of the mark in this step
		left, _ = parseFailures(planned.value) // written by value, so it has no error
	}
	if _, failed := left.find(name); !failed && name != "" || name == "" && d.marks.writes[key].cleared {
		return true // it has been decided already
	}
	if !d.cleared.again(f.unit, name, &d.retry, time.Now()) {
		return false
	}
	value := ""
	if left = left.without(name); name != "" && len(left.list) > 0 {
		value = left.value(d.Ledger.Limits().ValueBytes)
	}
	d.marks.set(markWrite{key: key, value: value, at: f.at, cleared: true})
	return true
}

// freshFailure is a failure that this step has read for the first time.
type freshFailure struct {
	f    *failing
	name string
	view orbit.Revision
}

// overtaken clears new failures because of node changes that came after the view of the failure but before the state of
// the previous step. Comparing the last two states does not show these changes, so overtaken goes through the
// remembered ones, back to the oldest view.
func (d *Dispatcher) overtaken(fresh []freshFailure) {
	if len(fresh) == 0 {
		return
	}
	byClass := map[*orbit.Spec][]freshFailure{}
	var specs []*orbit.Spec
	for _, one := range fresh {
		for _, spec := range one.f.specs {
			if byClass[spec] == nil {
				specs = append(specs, spec)
			}
			byClass[spec] = append(byClass[spec], one)
		}
	}
	for _, spec := range specs {
		line := byClass[spec]
		slices.SortStableFunc(line, func(a, b freshFailure) int { return cmp.Compare(a.view, b.view) })
		for i := len(d.recent) - 1; i >= 0 && len(line) > 0 && d.recent[i].at > line[0].view; i-- {
			line = d.overtakenBy(d.recent[i], spec, line)
		}
	}
}

// overtakenBy clears as many failures as the node has places for, and returns the others. The line is sorted by view.
func (d *Dispatcher) overtakenBy(c change, spec *orbit.Spec, line []freshFailure) []freshFailure {
	room := roomFor(d.state.Node(c.node), spec)
	if room == 0 {
		return line
	}
	helped, left := d.helped(c.node), line[:0:0]
	for i, one := range line {
		if room == 0 || one.view >= c.at {
			return append(left, line[i:]...)
		}
		if slices.Contains(helped, one.name) && d.clear(one.f, one.name) {
			room--
		} else {
			left = append(left, one)
		}
	}
	return left
}
