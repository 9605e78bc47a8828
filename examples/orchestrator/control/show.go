package control

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/rollout"
	"github.com/orbitsched/orbit/whatif"
)

// Status is a job and the state of its members.
type Status struct {
	Job
	// Pending, Placed and Ready count live members: Pending those that wait for a node, Placed those that have a node,
	// and Ready the placed members that serve.
	Pending int `json:"pending"`
	Placed  int `json:"placed"`
	Ready   int `json:"serving"`
	// Newest counts live members of a service that are of the newest generation.
	Newest int `json:"newest"`
	// Done counts members of a batch or a gang that have ended.
	Done int `json:"done"`
	// On says on which node each live member is; empty: the member waits.
	On map[orbit.CapsuleID]orbit.NodeID `json:"on"`
}

// status counts the members of a job.
func (w *world) status(j *Job) Status {
	s := Status{Job: *j, On: map[orbit.CapsuleID]orbit.NodeID{}, Done: min(j.Submitted, j.Count)}
	for _, c := range w.members[j.Name] {
		s.On[c.ID] = c.Node
		if j.Kind != Service {
			s.Done--
		}
		if c.Label(rollout.VersionLabel) == strconv.Itoa(j.Generation) {
			s.Newest++
		}
		switch {
		case c.Pending():
			s.Pending++
		case c.Ready:
			s.Ready++
			fallthrough
		default:
			s.Placed++
		}
	}
	return s
}

// now reads the newest state.
func (c *Control) now(r *http.Request) (*world, error) {
	state, err := c.ledger.Snapshot(r.Context())
	if err != nil {
		return nil, err
	}
	return read(state), nil
}

// find reads the newest state and the job that the request names.
func (c *Control) find(r *http.Request) (*world, *Job, error) {
	w, err := c.now(r)
	if err != nil {
		return nil, nil, err
	}
	name := r.PathValue("name")
	if j := w.jobs[name]; j != nil {
		return w, j, nil
	}
	if err := w.broken[name]; err != nil {
		return nil, nil, err
	}
	return nil, nil, fmt.Errorf("job %q: %w", name, errNotFound)
}

func (c *Control) getJobs(r *http.Request) (any, error) {
	w, err := c.now(r)
	if err != nil {
		return nil, err
	}
	all := []Status{}
	for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
		all = append(all, w.status(w.jobs[name]))
	}
	return all, nil
}

func (c *Control) getJob(r *http.Request) (any, error) {
	w, j, err := c.find(r)
	if err != nil {
		return nil, err
	}
	return w.status(j), nil
}

// Node is a node and its condition.
type Node struct {
	// ID and Labels are those of the ledger.
	ID     orbit.NodeID      `json:"id"`
	Labels map[string]string `json:"labels"`
	// State says whether it takes work, and Draining whether its work is moved away.
	State    orbit.Condition `json:"state"`
	Draining bool            `json:"draining"`
	// Free is the free capacity, in the units of a job.
	Free map[string]int64 `json:"free"`
	// Capsules are placed on the node. Stopping were taken off the node and still run there.
	Capsules []orbit.CapsuleID `json:"capsules"`
	Stopping []orbit.CapsuleID `json:"stopping"`
}

func (c *Control) getNodes(r *http.Request) (any, error) {
	w, err := c.now(r)
	if err != nil {
		return nil, err
	}
	all := []Node{}
	for n := range w.state.Nodes() {
		free := n.Free()
		mark, _ := w.state.Mark(keyDrain + string(n.Node.ID))
		node := Node{
			ID: n.Node.ID, State: n.Node.State, Draining: mark != "", Labels: n.Node.Labels, Capsules: []orbit.CapsuleID{}, Stopping: []orbit.CapsuleID{},
			Free: map[string]int64{"cpu": free[orbit.CPU], "memoryMB": free[orbit.Memory] >> 20},
		}
		for capsule := range w.state.On(n.Node.ID) {
			node.Capsules = append(node.Capsules, capsule.ID)
		}
		for rest := range w.state.Remains(n.Node.ID) {
			node.Stopping = append(node.Stopping, rest.Capsule)
		}
		slices.Sort(node.Capsules)
		all = append(all, node)
	}
	return all, nil
}

// Queue is a queue and what it uses. Amounts are in the ledger's units: thousandths of a core, bytes.
type Queue struct {
	orbit.Queue
	// Used is what the members use that are charged to the queue, and queues below it beyond what they have. Available is
	// what the queue may still use, and Borrowed is what it uses beyond what it has itself.
	Used      map[string]int64 `json:"used"`
	Available map[string]int64 `json:"available"`
	Borrowed  map[string]int64 `json:"borrowed"`
	// Share is how much of what it could borrow it does borrow, as a fraction.
	Share string `json:"share"`
	// Waiting counts the members charged to the queue itself that wait for a node.
	Waiting int `json:"waiting"`
}

func show(q orbit.QueueState) Queue {
	return Queue{q.Queue, q.Used(), q.Available(), q.Borrowed(), q.Share().String(), q.Waiting}
}

func (c *Control) getQueues(r *http.Request) (any, error) {
	w, err := c.now(r)
	if err != nil {
		return nil, err
	}
	all := []Queue{}
	for q := range w.state.Queues() {
		all = append(all, show(q))
	}
	return all, nil
}

func (c *Control) getQueue(r *http.Request) (any, error) {
	w, err := c.now(r)
	if err != nil {
		return nil, err
	}
	id := orbit.QueueID(r.PathValue("name"))
	if q, has := w.state.Queue(id); has {
		return show(q), nil
	}
	return nil, fmt.Errorf("queue %q: %w", id, errNotFound)
}

// Explained says why members of a job do not run.
type Explained struct {
	// Waiting counts members that have no node.
	Waiting int `json:"waiting"`
	// Why says what the queue lacks, counts the nodes by what is in the way there, for a gang together with the members
	// that must be placed with it, and says what would help; nil: no member waits.
	Why []string `json:"why,omitempty"`
	// Stopping names members that wait until a former member has stopped, and the node where that one runs.
	Stopping map[orbit.CapsuleID]orbit.NodeID `json:"stopping,omitempty"`
}

// explainJob says why a job does not run: its queue has no room for a member, no node takes one, or a former member has
// to stop first.
func (c *Control) explainJob(r *http.Request) (any, error) {
	w, j, err := c.find(r)
	if err != nil {
		return nil, err
	}
	s, e := w.status(j), Explained{Stopping: map[orbit.CapsuleID]orbit.NodeID{}}
	e.Waiting = j.Count - s.Placed - s.Done
	if err := w.unqueued(j); err != nil {
		e.Why = []string{err.Error()}
	}
	for _, capsule := range w.members[j.Name] {
		if capsule.Remains() != nil {
			e.Stopping[capsule.ID] = capsule.Remains().Node
		}
		if !capsule.Pending() || e.Why != nil {
			continue
		}
		if e.Why, err = w.why(r.Context(), capsule); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// why explains why a capsule, or its gang, is not placed, in lines.
func (w *world) why(ctx context.Context, c *orbit.Capsule) ([]string, error) {
	var text fmt.Stringer
	var err error
	if c.Gang() != "" {
		text, err = whatif.ExplainGang(ctx, w.state, c.Gang())
	} else {
		text, err = whatif.Explain(ctx, w.state, c.Spec)
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if c.Gang() != "" {
		lines = append(w.lacks(c), lines...)
	}
	return lines, nil
}

// lacks says what the queue of a gang's member has too little of for all members that wait.
func (w *world) lacks(c *orbit.Capsule) (lines []string) {
	q, has := w.state.Queue(c.Spec.Queue)
	if !has {
		return nil
	}
	members := int64(0)
	for m := range w.state.Members(c.Gang()) {
		if m.Pending() {
			members++
		}
	}
	left := q.Available()
	for d, name := range map[int]string{orbit.CPU: "cpu", orbit.Memory: "memory"} {
		wants := members * c.Spec.Envelope.Reservation[d]
		if free, bound := left[name]; bound && wants > max(0, free) {
			lines = append(lines, fmt.Sprintf("queue %q has %d of %s left, and %d are asked for", q.Queue.ID, max(0, free), name, wants))
		}
	}
	slices.Sort(lines)
	return lines
}
