package control

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// world is the content of one state of the ledger as far as it concerns jobs.
type world struct {
	state *orbit.State
	jobs  map[string]*Job
	// The revision at which each job's mark was put.
	at map[string]orbit.Revision
	// Marks that cannot be read as a job.
	broken map[string]error
	// Live members of each job, by index.
	members map[string]map[int]*orbit.Capsule
}

// read reads a state. It looks at every capsule, which is good enough for some ten thousand.
func read(state *orbit.State) *world {
	w := &world{
		state: state, jobs: map[string]*Job{}, at: map[string]orbit.Revision{}, broken: map[string]error{},
		members: map[string]map[int]*orbit.Capsule{},
	}
	for key, value := range state.Marks(keyJob) {
		name, job := key[len(keyJob):], &Job{}
		_, w.at[name] = state.Mark(key)
		if err := json.Unmarshal([]byte(value), job); err != nil || job.Name != name || job.check() != nil {
			w.broken[name] = fmt.Errorf("mark %q is no job: %w", key, cmp.Or(err, job.check()))
			continue
		}
		w.jobs[name] = job
	}
	for c := range state.Capsules() {
		name := c.Label(labelJob)
		index, err := strconv.Atoi(strings.TrimPrefix(string(c.ID), name+"-"))
		if c.Released() || name == "" || err != nil { // it has ended, or belongs to no job
			continue
		}
		if w.members[name] == nil {
			w.members[name] = map[int]*orbit.Capsule{}
		}
		w.members[name][index] = c
	}
	return w
}

// unqueued returns why members of a job cannot be submitted: the queue that it names does not exist; nil: they can.
func (w *world) unqueued(j *Job) error {
	if _, has := w.state.Queue(orbit.QueueID(j.Queue)); j.Queue != "" && !has {
		return fmt.Errorf("job %q: %w: queue %q does not exist", j.Name, orbit.ErrInfeasible, j.Queue)
	}
	return nil
}

// plan returns the proposals that bring the ledger in line with the jobs; none if it is in line. Each proposal bets on
// the mark of its job. Quotas are none of its business: the ledger places no member for which its queue has no room, and
// the member waits.
func (w *world) plan(now time.Time) (out []orbit.Proposal) {
	out = append(out, w.nodes()...)
	for _, name := range slices.Sorted(maps.Keys(w.members)) {
		if w.jobs[name] == nil && w.broken[name] == nil { // deleted
			out = append(out, w.end(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
		d := &draft{world: w, job: w.jobs[name], members: w.members[name], now: orbit.Instant(now.UnixNano())}
		switch {
		case w.unqueued(d.job) != nil: // it was removed after the job was put; explain says so
		case d.job.Kind == Service:
			d.service(now)
		default:
			d.once()
		}
		if len(d.do) > 0 {
			out = append(out, d.proposal())
		}
	}
	return out
}

// nodes cordons nodes that are to be drained and have joined anew since the drain began.
func (w *world) nodes() (out []orbit.Proposal) {
	for key := range w.state.Marks(keyDrain) {
		n := w.state.Node(orbit.NodeID(key[len(keyDrain):]))
		if n == nil || n.Node.State != orbit.Ready {
			continue
		}
		node := n.Node.Clone()
		node.State = orbit.Cordoned
		_, at := w.state.Mark(key)
		out = append(out, orbit.Proposal{ID: orbit.NewProposalID(), View: w.state.Revision(), Do: []orbit.Commitment{orbit.PutNode{Node: node}},
			If: []orbit.Precondition{orbit.MarkAt{Key: key, Revision: at}, orbit.NodeAt{Node: node.ID, Specification: n.Specification}}})
	}
	return out
}

// end releases the remaining members of a job that was deleted.
func (w *world) end(name string) orbit.Proposal {
	p := orbit.Proposal{ID: orbit.NewProposalID(), View: w.state.Revision(), If: []orbit.Precondition{orbit.MarkAt{Key: keyJob + name}}}
	for _, i := range slices.Sorted(maps.Keys(w.members[name])) {
		p.Do = append(p.Do, orbit.Release{Capsule: w.members[name][i].ID, Final: true})
	}
	return p
}

// draft builds a proposal for one job.
type draft struct {
	*world
	job     *Job
	members map[int]*orbit.Capsule
	now     orbit.Instant
	do      []orbit.Commitment
}

func (d *draft) proposal() orbit.Proposal {
	return orbit.Proposal{ID: orbit.NewProposalID(), View: d.state.Revision(), Do: d.do,
		If: []orbit.Precondition{orbit.MarkAt{Key: keyJob + d.job.Name, Revision: d.at[d.job.Name]}}}
}

// submit submits a member of a service or a batch.
func (d *draft) submit(i int) {
	d.do = append(d.do, orbit.Submit{IDs: []orbit.CapsuleID{d.job.member(i)}, Spec: d.job.spec(), Labels: d.job.labels(), At: d.now})
}

func (d *draft) release(c *orbit.Capsule) {
	d.do = append(d.do, orbit.Release{Capsule: c.ID, Final: true})
}

// service plans a service: Count members, all of the newest generation.
func (d *draft) service(now time.Time) {
	do, err := d.job.service().Step(d.state, now)
	if d.do = do; err != nil {
		d.broken[d.job.Name] = err
	}
}

// shrink releases the members beyond Count.
func (d *draft) shrink() {
	for _, i := range slices.Sorted(maps.Keys(d.members)) {
		if i >= d.job.Count {
			d.release(d.members[i])
		}
	}
}

// once submits the members of a batch or a gang that were never submitted, each once.
func (d *draft) once() {
	next := *d.job
	switch {
	case next.Kind == Gang && next.Submitted == 0:
		next.Submitted = next.Count
		d.do = append(d.do, orbit.Submit{Gang: next.gang(d.at[next.Name]), Labels: next.labels(), At: d.now})
	case next.Kind == Batch:
		d.shrink()
		for ; next.Submitted < next.Count; next.Submitted++ {
			d.submit(next.Submitted)
		}
	}
	if next.Submitted != d.job.Submitted {
		d.do = append(d.do, next.mark())
	}
}

// gang returns the ledger's gang for a job. A job that is deleted and put again is another gang, which may have other
// members, so the id contains the revision of the job's mark.
func (j *Job) gang(at orbit.Revision) *orbit.Gang {
	role := orbit.Role{Name: "member", Spec: j.spec()}
	for i := range j.Count {
		role.Members = append(role.Members, j.member(i))
	}
	g := &orbit.Gang{ID: orbit.GangID(fmt.Sprintf("%s.%d", j.Name, at)), Roles: []orbit.Role{role}}
	if j.Level != "" {
		g.Levels = []string{j.Level}
	}
	return g
}

// mark puts a job.
func (j *Job) mark() orbit.Mark {
	text, _ := json.Marshal(j) // strings and numbers can be written
	return orbit.Mark{Key: keyJob + j.Name, Value: string(text)}
}
