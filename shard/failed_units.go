package shard

import (
	"container/list"
	"slices"

	"github.com/orbitsched/orbit"
)

// failing is a unit that has a failed mark.
type failing struct {
	unit     unit
	failures failures
	// at is the revision of the mark.
	at orbit.Revision
	// specs are the distinct specs of its capsules.
	specs []*orbit.Spec
}

// failingUnits indexes the units that have a failed mark, by spec and by the scheduler that has failed them: a unit can
// be helped if its spec fits on a node of that scheduler again.
type failingUnits struct {
	units map[unit]*failing
	// classes are in the order in which they were added.
	classes []*failingClass
	bySpec  map[*orbit.Spec]*failingClass
}

// failingClass holds the failing units with one spec, by the scheduler that has failed them.
type failingClass struct {
	spec  *orbit.Spec
	units int
	// queues are in the order of arrival. The key "" has the units that a change of any node may help.
	queues map[string]*lineup
}

// lineup is an ordered set.
type lineup struct {
	order list.List
	at    map[*failing]*list.Element
}

func newFailingUnits() failingUnits {
	return failingUnits{units: map[unit]*failing{}, bySpec: map[*orbit.Spec]*failingClass{}}
}

// said returns the failure that a scheduler has reported of a unit; f may be nil.
func (f *failing) said(scheduler string) (Failure, bool) {
	if f == nil {
		return Failure{}, false
	}
	return f.failures.find(scheduler)
}

// queues returns the keys of a unit in the queues of its classes. In strict mode these are the schedulers that have
// failed it, because only the nodes of a scheduler can help that scheduler. Otherwise, or if the mark had no room for
// all of them, the key is "".
func (f *failing) queues(strict bool) []string {
	if !strict || f.failures.more {
		return []string{""}
	}
	names := make([]string, len(f.failures.list))
	for i, one := range f.failures.list {
		names[i] = one.Scheduler
	}
	return names
}

// put adds a unit, or replaces what was known of it.
func (t *failingUnits) put(f *failing, strict bool) {
	t.drop(f.unit, strict)
	t.units[f.unit] = f
	for _, spec := range f.specs {
		k := t.bySpec[spec]
		if k == nil {
			k = &failingClass{spec: spec, queues: map[string]*lineup{}}
			t.bySpec[spec] = k
			t.classes = append(t.classes, k)
		}
		k.units++
		for _, name := range f.queues(strict) {
			if k.queues[name] == nil {
				k.queues[name] = &lineup{at: map[*failing]*list.Element{}}
			}
			k.queues[name].at[f] = k.queues[name].order.PushBack(f)
		}
	}
}

// drop removes a unit.
func (t *failingUnits) drop(u unit, strict bool) {
	f := t.units[u]
	if f == nil {
		return
	}
	delete(t.units, u)
	for _, spec := range f.specs {
		k := t.bySpec[spec]
		for _, name := range f.queues(strict) {
			q := k.queues[name]
			q.order.Remove(q.at[f])
			if delete(q.at, f); len(q.at) == 0 {
				delete(k.queues, name)
			}
		}
		if k.units--; k.units == 0 {
			t.dropClass(k)
		}
	}
}

// dropClass removes a class that has no units.
func (t *failingUnits) dropClass(k *failingClass) {
	delete(t.bySpec, k.spec)
	i := slices.Index(t.classes, k)
	t.classes = slices.Delete(t.classes, i, i+1)
}

// next returns the first unit and moves it to the end.
func (q *lineup) next() *failing {
	e := q.order.Front()
	q.order.MoveToBack(e)
	return e.Value.(*failing)
}
