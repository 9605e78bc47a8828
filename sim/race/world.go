package race

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
)

const worldName = "world"

// world does what happens around the schedulers: it submits jobs, ends tasks, delivers late messages and lets nodes
// report. It has an agenda, and is an actor like the engines, but its own proposals have no faults.
type world struct {
	*actor
	agenda heap.Heap[entry]
	order  uint64
	// left is the number of entries on the agenda that are not reports.
	left int
}

// entry is an entry of the agenda.
type entry struct {
	at    time.Duration
	order uint64
	do    func(ctx context.Context)
}

// Before orders entries by time, and entries of the same time in the order in which they were made.
func (e entry) Before(o entry) bool {
	return cmp.Or(cmp.Compare(e.at, o.at), cmp.Compare(e.order, o.order)) < 0
}

func newWorld(c *course) *world {
	w := &world{actor: newActor(c, nil, 0)}
	w.name = worldName
	return w
}

// prepare adds the nodes to the ledger, and puts the jobs, the events and the first reports on the agenda.
func (w *world) prepare() {
	for from := 0; from < len(w.Nodes); from += 1000 {
		p := orbit.Proposal{ID: w.nextID()}
		for _, n := range w.Nodes[from:min(from+1000, len(w.Nodes))] {
			p.Do = append(p.Do, orbit.PutNode{Node: n})
		}
		if err := w.propose(background(), &p); err != nil {
			w.fail("nodes", "%v", err)
		}
	}
	for i := range w.Jobs {
		t := &task{Job: &w.Jobs[i], number: i + 1}
		w.jobs = append(w.jobs, t)
		for k := range t.Tasks {
			w.jobOf[t.capsule(k)] = t
		}
		if w.endless = w.endless || t.Again; !t.Again {
			w.awaited++
		}
		w.later(t.At, func(ctx context.Context) { w.submit(ctx, t) })
	}
	w.left = len(w.jobs)
	for i := range w.Events {
		e := &w.Events[i]
		if e.kind != "" {
			continue
		}
		w.left++
		w.later(e.At, func(ctx context.Context) {
			w.left--
			w.disturb()
			_ = w.propose(ctx, &orbit.Proposal{ID: w.nextID(), Do: e.Do}) // it may be refused
		})
	}
	if w.play != nil {
		w.play.begin()
	} else if w.board != nil {
		for i := range w.Nodes {
			w.later(w.Heartbeat, func(context.Context) { w.beat(i, 1) })
		}
	}
	w.gone, w.idle, w.kind = false, true, stepWorld
	go w.live()
	w.plan()
}

// capsule returns the id of task k, from 0.
func (t *task) capsule(k int) orbit.CapsuleID {
	return orbit.CapsuleID(fmt.Sprintf("j%d-%d", t.number, k+1))
}

// gang returns the id of the job's gang.
func (t *task) gang() orbit.GangID { return orbit.GangID(fmt.Sprint("j", t.number)) }

// live does the entries of the agenda one after another, one a step.
func (w *world) live() {
	defer w.bye()
	ctx := context.WithValue(background(), actorKey{}, w.actor)
	<-w.resume // prepare has planned the first step
	for !w.dead {
		w.idle = false
		e := w.agenda.Pop()
		e.do(ctx)
		w.idle = true
		w.stop(stepWorld, "wait for what comes next")
	}
}

// later puts something on the agenda.
func (w *world) later(at time.Duration, do func(context.Context)) {
	w.order++
	w.agenda.Push(entry{at, w.order, do})
	if w.idle && !w.moving {
		w.plan()
	}
}

// plan plans the world's next step. It requires the world to wait.
func (w *world) plan() {
	if len(w.agenda) > 0 {
		w.push(w.actor, max(w.now, w.agenda[0].at))
	}
}

// propose sends a proposal of the world's own, and notes its outcome.
func (w *world) propose(ctx context.Context, p *orbit.Proposal) error {
	w.audit.ask(p, w.actor)
	rev, err := w.ledger.Propose(ctx, *p)
	w.audit.answer(w.actor, p, rev, err)
	if err == nil {
		w.note(w.actor, "%s: committed at %d", describe(p), rev)
	} else {
		w.note(w.actor, "%s: %v", describe(p), err)
	}
	w.quiet = 0
	return err
}

// submit submits a job.
func (w *world) submit(ctx context.Context, t *task) {
	w.left--
	ids := make([]orbit.CapsuleID, t.Tasks)
	for k := range ids {
		ids[k] = t.capsule(k)
	}
	do := orbit.Submit{IDs: ids, Spec: t.Spec, Owner: t.Owner}
	if t.Gang {
		do = orbit.Submit{Owner: t.Owner, Gang: &orbit.Gang{ID: t.gang(), Levels: t.Levels,
			Roles: []orbit.Role{{Name: "task", Spec: t.Spec, Members: ids[:t.Tasks-t.Joins], Min: t.Min}}}}
		w.joins(t, ids[t.Tasks-t.Joins:])
	}
	w.note(w.actor, "submits job %d: %d tasks", t.number, t.Tasks)
	t.submitted = true
	p := orbit.Proposal{ID: w.nextID(), Do: []orbit.Commitment{do}}
	for k, on := range t.On {
		p.Do = append(p.Do, orbit.Place{Capsule: ids[k], Node: on})
	}
	if err := w.propose(ctx, &p); err != nil {
		w.fail("submit", "job %d: %v", t.number, err)
	}
}

// joins lets tasks join their gang, one after the other, until it has ended.
func (w *world) joins(t *task, ids []orbit.CapsuleID) {
	if len(ids) == 0 {
		return
	}
	w.left++
	w.later(w.now+t.Later, func(ctx context.Context) {
		w.left--
		if now := w.audit.gangs[t.gang()]; now == nil || now.left(0) == 0 {
			return
		}
		g := &orbit.Gang{ID: t.gang(), Roles: []orbit.Role{{Name: "task", Spec: t.Spec, Members: ids[:1]}}}
		if err := w.propose(ctx, &orbit.Proposal{ID: w.nextID(), Do: []orbit.Commitment{orbit.Submit{Gang: g, Join: true}}}); err != nil {
			w.fail("submit", "job %d: %v", t.number, err)
		}
		w.joins(t, ids[1:])
	})
}

// again submits a new task of a job with Again, in place of one that has ended.
func (w *world) again(t *task) {
	w.left++
	w.later(w.now, func(ctx context.Context) {
		w.left--
		id := t.capsule(t.Tasks + t.more)
		t.more++
		w.jobOf[id] = t
		if err := w.propose(ctx, &orbit.Proposal{ID: w.nextID(), Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: t.Spec, Owner: t.Owner}}}); err != nil {
			w.fail("submit", "job %d: %v", t.number, err)
		}
	})
}

// ends puts the end of a task on the agenda. At that time the task ends only if it still has the same placement.
func (w *world) ends(id orbit.CapsuleID, t *task, placed orbit.Revision) {
	w.left++
	w.later(w.now+t.Lasts, func(ctx context.Context) {
		w.left--
		if m := w.audit.capsules[id]; m.node == "" || m.placedAt != placed {
			return
		}
		p := &orbit.Proposal{ID: w.nextID(), Do: []orbit.Commitment{orbit.Release{Capsule: id, Final: true}}}
		if w.audit.capsules[id].last() { // the gang's last placed member: its pending ones can no longer be placed alone
			for k := range t.Tasks {
				if m := w.audit.capsules[t.capsule(k)]; m != nil && m.node == "" && !m.ended {
					p.Do = append(p.Do, orbit.Release{Capsule: m.id, Final: true})
				}
			}
		}
		if w.audit.capsules[id].begun {
			p.Do = append(p.Do, orbit.Confirm{Capsule: id, Since: placed, Stopped: true})
		}
		if err := w.propose(ctx, p); err != nil && w.audit.capsules[id].placedAt == placed && !w.audit.capsules[id].ended {
			w.fail("end", "task %s cannot end: %v", id, err)
		}
	})
}

// deliver schedules the arrival of a late proposal. Its answer is dropped.
func (w *world) deliver(from *actor, p orbit.Proposal, late time.Duration) {
	w.left++
	w.later(w.now+late, func(ctx context.Context) {
		w.left--
		w.quiet = 0
		rev, err := w.ledger.Propose(ctx, p)
		w.audit.answer(w.actor, &p, rev, err)
		if err == nil {
			w.note(w.actor, "late proposal of %s arrives: %s: committed at %d", from.name, describe(&p), rev)
		} else {
			w.note(w.actor, "late proposal of %s arrives: %s: %v", from.name, describe(&p), err)
		}
	})
}

// beat lets a node report, for the k-th time.
func (w *world) beat(node, k int) {
	f := w.stop(stepReport, "%s reports", w.Nodes[node].ID)
	report := orbit.Report{Node: w.Nodes[node].ID, At: w.start.Add(w.now), CPUPercent: load(node, k)}
	switch f.what {
	case faultDropped:
	case faultLate: // the report may then be older than the newest one
		w.later(w.now+f.long, func(context.Context) { _ = w.board.Report(report) })
	default:
		_ = w.board.Report(report)
	}
	w.later(w.now+w.Heartbeat, func(context.Context) { w.beat(node, k+1) })
}

// load returns a made-up load for the k-th report of a node, from 0 to 99 percent.
func load(node, k int) float64 {
	d := newDraw(uint64(node), "load", k)
	return float64(int(100 * d.uniform()))
}
