package shard

import (
	"container/list"

	"github.com/orbitsched/orbit"
)

// failing is a unit that has a failed mark.
type failing struct {
	unit     unit
	failures failures
	// Of the mark.
	at orbit.Revision
	// What its capsules ask for.
	specs []*orbit.Spec
}

// failingUnits are the units that have a failed mark and wait, by what could help them: a spec that fits again, for
// the scheduler that said it does not.
type failingUnits struct {
	units map[unit]*failing
	// In order of appearance.
	classes []*failingClass
	bySpec  map[*orbit.Spec]*failingClass
}

// failingClass is the failing units that ask for one spec, by who has failed them.
type failingClass struct {
	spec  *orbit.Spec
	units int
	// First come, first served. Under "" are those that anybody's change may help.
	by map[string]*lineup
}

// lineup is an ordered set.
type lineup struct {
	order list.List
	at    map[*failing]*list.Element
}

func newFailingUnits() failingUnits {
	return failingUnits{units: map[unit]*failing{}, bySpec: map[*orbit.Spec]*failingClass{}}
}

// said returns what a scheduler said of a unit; f may be nil.
func (f *failing) said(scheduler string) (Failure, bool) {
	if f == nil {
		return Failure{}, false
	}
	return f.failures.of(scheduler)
}

// queues returns the names under which a unit is to be found in its classes. Where nodes are divided each scheduler can
// be helped on its own ones; those of a list that is not complete count as failed by all.
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

// put takes a unit in, in the place of what was known of it.
func (t *failingUnits) put(f *failing, strict bool) {
	t.drop(f.unit, strict)
	t.units[f.unit] = f
	for _, spec := range f.specs {
		k := t.bySpec[spec]
		if k == nil {
			k = &failingClass{spec: spec, by: map[string]*lineup{}}
			t.bySpec[spec] = k
			t.classes = append(t.classes, k)
		}
		k.units++
		for _, name := range f.queues(strict) {
			if k.by[name] == nil {
				k.by[name] = &lineup{at: map[*failing]*list.Element{}}
			}
			k.by[name].at[f] = k.by[name].order.PushBack(f)
		}
	}
}

// drop forgets a unit.
func (t *failingUnits) drop(u unit, strict bool) {
	f := t.units[u]
	if f == nil {
		return
	}
	delete(t.units, u)
	for _, spec := range f.specs {
		k := t.bySpec[spec]
		for _, name := range f.queues(strict) {
			q := k.by[name]
			q.order.Remove(q.at[f])
			if delete(q.at, f); len(q.at) == 0 {
				delete(k.by, name)
			}
		}
		if k.units--; k.units == 0 {
			t.dropClass(k)
		}
	}
}

// dropClass forgets a class that has no units.
func (t *failingUnits) dropClass(k *failingClass) {
	delete(t.bySpec, k.spec)
	for i := range t.classes {
		if t.classes[i] == k {
			t.classes = append(t.classes[:i], t.classes[i+1:]...)
			return
		}
	}
}

// next returns the unit that is next in line and puts it last.
func (q *lineup) next() *failing {
	e := q.order.Front()
	q.order.MoveToBack(e)
	return e.Value.(*failing)
}
