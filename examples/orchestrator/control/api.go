package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/rollout"
)

// Handler serves the API and the agents of nodes. It asks for no credentials, so let it listen only where every caller
// is allowed.
func (c *Control) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/agent/", http.StripPrefix("/agent", agent.Handler(c.local)))
	mux.Handle("GET "+pathBoard, serveBoard(c.local.Board))
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.metrics, promhttp.HandlerOpts{}))
	for pattern, serve := range map[string]func(*http.Request) (any, error){
		"GET /health":               c.getHealth,
		"GET /jobs":                 c.getJobs,
		"GET /jobs/{name}":          c.getJob,
		"PUT /jobs/{name}":          c.putJob,
		"DELETE /jobs/{name}":       c.deleteJob,
		"POST /jobs/{name}/scale":   c.scaleJob,
		"POST /jobs/{name}/rollout": c.rolloutJob,
		"GET /jobs/{name}/explain":  c.explainJob,
		"GET /nodes":                c.getNodes,
		"POST /nodes/{id}/drain":    c.drainNode,
		"DELETE /nodes/{id}/drain":  c.undrainNode,
		"GET /queues":               c.getQueues,
		"GET /queues/{name}":        c.getQueue,
		"PUT /queues/{name}":        c.putQueue,
		"DELETE /queues/{name}":     c.deleteQueue,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, err := serve(r)
			status := http.StatusOK
			if err != nil {
				status, answer = statusOf(err), map[string]string{"error": err.Error()}
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			e.SetEscapeHTML(false)
			_ = e.Encode(answer) // the caller is gone
		})
	}
	return mux
}

// getHealth says whether the ledger can commit. If it cannot, the answer has the status 503 and says why.
func (c *Control) getHealth(*http.Request) (any, error) {
	if err := orbit.HealthOf(c.ledger); err != nil {
		return nil, fmt.Errorf("%w: the ledger can commit nothing: %w", orbit.ErrUnavailable, err)
	}
	return map[string]bool{"healthy": true}, nil
}

var errNotFound = errors.New("not found")

func statusOf(err error) int {
	switch {
	case errors.Is(err, errNotFound):
		return http.StatusNotFound
	case errors.Is(err, orbit.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, orbit.ErrConflict), errors.Is(err, orbit.ErrInfeasible):
		return http.StatusConflict
	case errors.Is(err, orbit.ErrUnavailable), errors.Is(err, orbit.ErrUnknown):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// body reads the JSON object that was sent; nothing if none was.
func body(r *http.Request, into any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, 1<<20))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("body: %w: %w", orbit.ErrInvalid, err)
	}
	return nil
}

// change commits the commitments that f returns for the newest state, and calls f again after a conflict. If an answer
// was lost, change sends the same proposal again. When change returns nil, the change survives this process.
func (c *Control) change(ctx context.Context, f func(w *world) ([]orbit.Commitment, []orbit.Precondition, error)) error {
	for {
		state, err := c.ledger.Snapshot(ctx)
		if err != nil {
			return err
		}
		do, bets, err := f(read(state))
		if err != nil || len(do) == 0 {
			return err
		}
		p := orbit.Proposal{ID: orbit.NewProposalID(), View: state.Revision(), Do: do, If: bets}
		for err = orbit.ErrUnknown; errors.Is(err, orbit.ErrUnknown) && ctx.Err() == nil; {
			_, err = c.ledger.Propose(ctx, p)
		}
		if !errors.Is(err, orbit.ErrConflict) || ctx.Err() != nil {
			return err
		}
	}
}

// edit changes a job. The function gets a copy of the job, or nil if there is no such job.
func (c *Control) edit(ctx context.Context, name string, f func(*Job) (*Job, error)) (*Job, error) {
	var done *Job
	err := c.change(ctx, func(w *world) ([]orbit.Commitment, []orbit.Precondition, error) {
		job := w.jobs[name]
		switch {
		case w.broken[name] != nil:
			return nil, nil, w.broken[name]
		case job == nil && len(w.members[name]) > 0:
			return nil, nil, fmt.Errorf("job %q: %w: it was deleted, and its members are about to end; try again", name, orbit.ErrInfeasible)
		case job != nil:
			copied := *job
			job = &copied
		}
		next, err := f(job)
		if err == nil {
			err = cmp.Or(next.check(), w.unqueued(next))
		}
		if err != nil {
			return nil, nil, err
		}
		done = next
		return []orbit.Commitment{next.mark()}, []orbit.Precondition{orbit.MarkAt{Key: keyJob + name, Revision: w.at[name]}}, nil
	})
	return done, err
}

// existing turns an edit of an existing job into a function for edit, which returns errNotFound if there is no job.
func existing(name string, f func(*Job) (*Job, error)) func(*Job) (*Job, error) {
	return func(j *Job) (*Job, error) {
		if j == nil {
			return nil, fmt.Errorf("job %q: %w", name, errNotFound)
		}
		return f(j)
	}
}

// putJob makes a job or changes it. If the program of a service differs, the service is rolled out.
func (c *Control) putJob(r *http.Request) (any, error) {
	var wanted Job
	if err := body(r, &wanted); err != nil {
		return nil, err
	}
	wanted.Name, wanted.Generation, wanted.Submitted = r.PathValue("name"), 1, 0
	return c.edit(r.Context(), wanted.Name, func(j *Job) (*Job, error) {
		next := wanted
		if j == nil {
			return &next, nil
		}
		next.Generation, next.Submitted = j.Generation, j.Submitted
		if j.same(&next) {
			return &next, next.resized(j)
		}
		if j.Kind != Service || next.Kind != Service {
			return nil, fmt.Errorf("job %q: %w: only services are rolled out; delete it and put it again", j.Name, orbit.ErrInvalid)
		}
		next.Generation++
		return &next, nil
	})
}

// resized returns why a job cannot have another count; nil: it can.
func (j *Job) resized(from *Job) error {
	if j.Kind == Gang && j.Count != from.Count && from.Submitted > 0 {
		return fmt.Errorf("job %q: %w: a gang keeps its count", j.Name, orbit.ErrInvalid)
	}
	return nil
}

func (c *Control) scaleJob(r *http.Request) (any, error) {
	name := r.PathValue("name")
	count, err := strconv.Atoi(r.URL.Query().Get("count"))
	if err != nil {
		return nil, fmt.Errorf("count: %w: %w", orbit.ErrInvalid, err)
	}
	return c.edit(r.Context(), name, existing(name, func(j *Job) (*Job, error) {
		next := *j
		next.Count = count
		return &next, next.resized(j)
	}))
}

// rolloutJob replaces all members of a service. If the body names a program, the new members run that program.
func (c *Control) rolloutJob(r *http.Request) (any, error) {
	var to struct {
		Run []string `json:"run"`
	}
	if err := body(r, &to); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	return c.edit(r.Context(), name, existing(name, func(j *Job) (*Job, error) {
		if j.Kind != Service {
			return nil, fmt.Errorf("job %q: %w: only services are rolled out", name, orbit.ErrInvalid)
		}
		if len(to.Run) > 0 {
			j.Run = to.Run
		}
		j.Generation++
		return j, nil
	}))
}

// deleteJob ends a job by removing its mark; the loop then releases the job's members.
func (c *Control) deleteJob(r *http.Request) (any, error) {
	name := r.PathValue("name")
	return map[string]string{"deleted": name}, c.change(r.Context(), func(w *world) (do []orbit.Commitment, _ []orbit.Precondition, _ error) {
		if w.jobs[name] == nil && w.broken[name] == nil {
			return nil, nil, fmt.Errorf("job %q: %w", name, errNotFound)
		}
		do = append(do, orbit.Mark{Key: keyJob + name})
		id := (&rollout.Service{Name: name}).BudgetID()
		if _, has := w.state.Budget(id); has {
			do = append(do, orbit.RemoveBudget{Budget: id})
		}
		return do, []orbit.Precondition{orbit.MarkAt{Key: keyJob + name, Revision: w.at[name]}}, nil
	})
}

// drainNode drains a node: one commit cordons the node and sets the mark of the drain.
func (c *Control) drainNode(r *http.Request) (any, error) {
	return c.setDrain(r, "yes", orbit.Cordoned)
}

func (c *Control) undrainNode(r *http.Request) (any, error) { return c.setDrain(r, "", orbit.Ready) }

func (c *Control) setDrain(r *http.Request, mark string, to orbit.Condition) (any, error) {
	id := orbit.NodeID(r.PathValue("id"))
	return map[string]any{"node": id, "drain": mark != ""}, c.change(r.Context(), func(w *world) ([]orbit.Commitment, []orbit.Precondition, error) {
		n := w.state.Node(id)
		if n == nil {
			return nil, nil, fmt.Errorf("node %q: %w", id, errNotFound)
		}
		do := []orbit.Commitment{orbit.Mark{Key: keyDrain + string(id), Value: mark}}
		if node := *n.Node; node.State != orbit.Lost {
			node.State = to
			do = append(do, orbit.PutNode{Node: node})
		}
		return do, []orbit.Precondition{orbit.NodeAt{Node: id, Specification: n.Specification}}, nil
	})
}

// putQueue makes a queue or changes it.
func (c *Control) putQueue(r *http.Request) (any, error) {
	var q orbit.Queue
	if err := body(r, &q); err != nil {
		return nil, err
	}
	q.ID = orbit.QueueID(r.PathValue("name"))
	if !goodName.MatchString(string(q.ID)) {
		return nil, fmt.Errorf("queue %.70q: %w: its name must be like a job's", q.ID, orbit.ErrInvalid)
	}
	return q, c.change(r.Context(), func(*world) ([]orbit.Commitment, []orbit.Precondition, error) {
		return []orbit.Commitment{orbit.PutQueue{Queue: q}}, nil, nil
	})
}

// deleteQueue ends a queue. The ledger refuses that as long as members of jobs, or queues below, name it.
func (c *Control) deleteQueue(r *http.Request) (any, error) {
	id := orbit.QueueID(r.PathValue("name"))
	return map[string]orbit.QueueID{"deleted": id}, c.change(r.Context(), func(w *world) ([]orbit.Commitment, []orbit.Precondition, error) {
		if _, has := w.state.Queue(id); !has {
			return nil, nil, fmt.Errorf("queue %q: %w", id, errNotFound)
		}
		for _, j := range w.jobs {
			if j.Queue == string(id) {
				return nil, nil, fmt.Errorf("queue %q: %w: job %q names it", id, orbit.ErrInfeasible, j.Name)
			}
		}
		return []orbit.Commitment{orbit.RemoveQueue{Queue: id}}, nil, nil
	})
}
