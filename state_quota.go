package orbit

import (
	"iter"
	"slices"

	"github.com/orbitsched/orbit/internal/wide"
)

// queue returns the record of a queue, nil if there is no such queue.
func (s *State) queue(id QueueID) *queueRecord {
	if q := s.queueNamed(id); q != nil && q.quota != nil {
		return q
	}
	return nil
}

// queueNamed returns what the state keeps under the id of a queue, also if there is no such queue; nil: nothing.
func (s *State) queueNamed(id QueueID) *queueRecord {
	if id == "" || s.queues.Len() == 0 {
		return nil
	}
	q, _ := s.queues.Get(queueAt{id: id})
	return q.queueRecord
}

// Queue returns the state of the queue with this id, and whether there is one.
func (s *State) Queue(id QueueID) (QueueState, bool) {
	q := s.queue(id)
	if q == nil {
		return QueueState{}, false
	}
	return q.standing(s), true
}

// Queues yields all queues, ordered by id.
func (s *State) Queues() iter.Seq[QueueState] {
	return func(yield func(QueueState) bool) {
		s.queues.Ascend(func(q queueAt) bool { return q.quota == nil || yield(q.standing(s)) })
	}
}

// Share returns the share of a queue. It is the most, over all resources, of what the queue borrows divided by what its
// siblings and it may use at most in all, and by its weight: 0 if it borrows nothing, if it is the root of a tree, or if there is no
// such queue. A lower share comes first when queues compete.
func (s *State) Share(id QueueID) Share {
	q := s.queue(id)
	if q == nil {
		return Share{}
	}
	return q.share(s)
}

// queuesByLevel yields the queues, each after its parent: the roots first, then those below them, each level ordered by id.
func (s *State) queuesByLevel(yield func(*queueRecord) bool) {
	for level, found := 1, true; found && level <= maxQueueLevels; level++ {
		found = false
		for q := range s.queues.Ascend {
			if q.quota == nil || q.level(s) != level {
				continue
			}
			if found = true; !yield(q.queueRecord) {
				return
			}
		}
	}
}

// reclaims reports whether an eviction is judged by the queues of the two sides, which differ, and not by their priorities: as far as
// the state shows the newcomer.
func (s *State) reclaims(e *Evict, victim *Capsule) bool {
	if s.queue(victim.Spec.Queue) == nil {
		return false
	}
	differs := func(c *Capsule) bool { return c.Spec.Queue != victim.Spec.Queue && s.queue(c.Spec.Queue) != nil }
	if c := s.Capsule(e.For); c != nil {
		return differs(c)
	}
	for c := range s.Members(e.ForGang) {
		if !differs(c) {
			return false
		}
	}
	return e.ForGang != "" && s.Gang(e.ForGang) != nil
}

// hasQuota reports whether the queue of a spec has enough available for one more capsule of it, with devices of one of these models;
// nil: of one that the spec accepts.
func (s *State) hasQuota(spec *Spec, models []string) bool {
	q := s.queue(spec.Queue)
	if q == nil {
		return true
	}
	root := q.root(s)
	if len(models) == 0 {
		models = spec.Devices.Models
	}
	if len(models) == 0 {
		models = []string{""}
	}
	return slices.ContainsFunc(models, func(model string) bool {
		for r, x := range spec.charges(model) {
			if root.divides(r) && (wide.Int{}).Plus(x).Exceeds(q.available(s, r)) {
				return false
			}
		}
		return true
	})
}
