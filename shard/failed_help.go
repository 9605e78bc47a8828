package shard

import (
	"cmp"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// This file decides which failed marks a change of the world clears. What helps is room: a node takes more capsules of
// a class than before, because it joined, grew, was changed or was freed; or it is now a node of a scheduler that had
// failed the class. As many units are cleared as there is new room for, in turn, so a stampede finds room for
// everybody in it. Looking costs changed nodes times failing classes, however many capsules wait.
//
// A failure says on which view it rests, so a change that its scheduler has seen does not clear it, and one that was
// overtaken by the mark does. Not looked at are what no ledger knows (reports of nodes) and company that a capsule
// wants to be near: those are left to the dispatcher's retries.

// maxRoom is as far as room is counted.
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
	return max(int(room), 1) // it fits
}

// change is a node that may take more than before.
type change struct {
	node orbit.NodeID
	// The latest of what may help.
	at orbit.Revision
	// It has gone over to another scheduler.
	moved bool
}

// help clears failed marks for what has changed between two states; before is nil if nothing is known of it.
func (d *Dispatcher) help(changes []change, before *orbit.State) {
	for _, k := range d.failing.classes {
		for _, c := range changes {
			d.helpClass(k, c, before)
		}
	}
}

// helpClass clears what one changed node can help of one class.
func (d *Dispatcher) helpClass(k *failingClass, c change, before *orbit.State) {
	room := roomFor(d.state.Node(c.node), k.spec)
	if room > 0 && before != nil && !c.moved {
		room -= roomFor(before.Node(c.node), k.spec)
	}
	if room <= 0 {
		return
	}
	for _, name := range d.helped(c.node) {
		d.helpLine(k.by[name], name, c.at, room)
	}
}

// maxPassed is how many that have been cleared in vain are passed over for others who may have the room.
const maxPassed = 64

// helpLine clears so many in turn. Those do not count that are not to be cleared again so soon.
func (d *Dispatcher) helpLine(q *lineup, name string, at orbit.Revision, room int) {
	for looked, passed := 0, 0; looked < q.len() && looked-passed < room && passed < maxPassed; looked++ {
		if f := q.next(); f.restsBefore(name, at) && !d.clear(f, name) {
			passed++
		}
	}
}

// helped returns whose failures room on a node can help: its group's, if nodes are divided, and those of "".
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

// restsBefore reports whether a failure that the name stands for rests on a view before the revision.
func (f *failing) restsBefore(name string, at orbit.Revision) bool {
	for _, one := range f.failures.list {
		if (name == "" || one.Scheduler == name) && one.View < at {
			return true
		}
	}
	return len(f.failures.list) == 0
}

// clear decides that a unit's failures, or those of one scheduler, are to be taken back, unless that was in vain too often.
func (d *Dispatcher) clear(f *failing, name string) bool {
	kind := f.unit.failedMark()
	key := kind.key(f.unit.id)
	left := f.failures
	if planned, ok := d.marks.writes[key]; ok { // another node has helped, this scheduler or another one
		left, _ = parseFailures(planned.value) // we wrote it
	}
	if _, failed := left.of(name); !failed && name != "" || name == "" && d.marks.writes[key].cleared {
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

// freshFailure is a failure that this step has learned of.
type freshFailure struct {
	f    *failing
	name string
	view orbit.Revision
}

// overtaken clears failures that this step has learned of for what helped between the view that they rest on and the
// state before this step, which comparing states does not show. It looks at what has changed since the oldest view.
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

// overtakenBy clears as many as the node has room for, and returns the others. The line is in order of views.
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
