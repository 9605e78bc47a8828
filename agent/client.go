package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// Client is a [Control] for agents that do not run in the process of the ledger: it calls [Handler]s by HTTP. Set the
// fields before first use.
//
// With several URLs, a call goes to one process. If that one does not answer, cannot reach the ledger, or cannot vouch
// for the term that an agent reports under ([lease.ErrUnheard]), the next calls go to the process whose last failure is
// the oldest, and stay there until it fails, too. Client repeats no call by itself: its caller does, after a pause. An
// agent sends a newer report, and the same statements with the same ids, so it does no harm if a process that did not
// answer has had the call, or has it later.
//
// An agent waits for as long as [Agent.Every] for a process that does not answer, and tries the next one after a fifth
// of that. So that a node is not fenced meanwhile, [Lease].Fence should be longer than [Agent].Stopping by three times
// Every, and by Every more for each further process that may be suspended at the same time.
//
// [lease.ErrUnheard]: https://pkg.go.dev/github.com/orbitsched/orbit/lease#ErrUnheard
type Client struct {
	// URLs are the addresses of the Handlers, for example http://control:7070/agent. Required. If there are several, their
	// processes must share the ledger and the refreshes of leases (see package lease), and their boards must feed each
	// other (see package telemetry). Nodes begin with different ones, by their ids, so the order does not matter.
	URLs []string
	// HTTP makes the calls; default http.DefaultClient. If the Handlers require authentication, this client must do it.
	// It should have no Timeout, because each call has a context that ends.
	HTTP *http.Client

	mu sync.Mutex // guards what follows
	// failures counts failed calls. failed has for each URL the value of failures at its last failure; 0: it had none.
	failures uint64
	failed   []uint64
}

// Join implements [Control].
func (c *Client) Join(ctx context.Context, node orbit.Node, holder string) (Lease, error) {
	var got Lease
	return got, c.call(ctx, node.ID, pathJoin, joinRequest{node, holder}, &got)
}

// Leave implements [Control].
func (c *Client) Leave(ctx context.Context, node orbit.NodeID, term orbit.Revision) error {
	return c.call(ctx, node, pathLeave, leaveRequest{node, term}, &struct{}{})
}

// Report implements [Control].
func (c *Client) Report(ctx context.Context, report orbit.Report) error {
	return c.call(ctx, report.Node, pathReport, report, &struct{}{})
}

// Watch implements [Control]. It asks the Handler to answer within nine tenths of the time that ctx has left: a request
// that is answered leaves its connection usable, and a request that is cancelled does not.
func (c *Client) Watch(ctx context.Context, node orbit.NodeID, after orbit.Revision) (Work, error) {
	request := watchRequest{Node: node, After: after}
	if end, ok := ctx.Deadline(); ok {
		request.Wait = max(1, (time.Until(end) * 9 / 10).Milliseconds())
	}
	var work Work
	return work, c.with(ctx, node, func(url string) error {
		err := c.send(ctx, url+pathWatch, request, &work)
		if err == nil && work.Revision == 0 && !work.Absent { // it would have the agent stop all that runs
			err = fmt.Errorf("agent: %w: the answer of %s is no Work", orbit.ErrUnknown, url)
		}
		return err
	})
}

// Confirm implements [Control]. All outcomes wrap [orbit.ErrUnknown] if the answer was lost, and [orbit.ErrUnavailable] if there was no
// connection to send the request on.
func (c *Client) Confirm(ctx context.Context, node orbit.NodeID, term orbit.Revision, said []Statement) []orbit.Outcome {
	out := make([]orbit.Outcome, len(said))
	_ = c.with(ctx, node, func(url string) error {
		var answers []outcome
		err := c.send(ctx, url+pathConfirm, confirmRequest{node, term, said}, &answers)
		if err == nil && len(answers) != len(said) {
			err = fmt.Errorf("agent: %w: %d outcomes for %d statements", orbit.ErrUnknown, len(answers), len(said))
		}
		all := []error{err}
		for i := range out {
			if out[i].Err = err; err == nil {
				out[i] = orbit.Outcome{Revision: answers[i].Revision, Err: answers[i].Failure.err()}
				all = append(all, out[i].Err)
			}
		}
		return errors.Join(all...) // each one is an outcome
	})
	return out
}

// call sends a request and reads the answer.
func (c *Client) call(ctx context.Context, node orbit.NodeID, path string, request, answer any) error {
	return c.with(ctx, node, func(url string) error { return c.send(ctx, url+path, request, answer) })
}

// with makes a call of the process that is the node's turn, and notes whether that process is able to serve.
func (c *Client) with(ctx context.Context, node orbit.NodeID, call func(url string) error) error {
	if len(c.URLs) == 0 {
		return call("")
	}
	n := c.choose(node)
	err := call(strings.TrimSuffix(c.URLs[n], "/"))
	if unable(err) && !errors.Is(ctx.Err(), context.Canceled) { // the caller's end says nothing of the process
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failures++
		c.failed[n] = c.failures
	}
	return err
}

// choose returns the index of the URL for a call about a node: the one whose last failure is the oldest. Of those
// without a failure it is the first one, in an order that begins at a place which the node's id decides.
func (c *Client) choose(node orbit.NodeID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.URLs)
	if c.failed == nil {
		c.failed = make([]uint64, n)
	}
	hash := sha256.Sum256([]byte(node)) // ids are often numbered, which shows in simpler hashes
	first := int(binary.BigEndian.Uint32(hash[:]) % uint32(n))
	best := first
	for i := range n {
		if at := (first + i) % n; c.failed[at] < c.failed[best] {
			best = at
		}
	}
	return best
}

// unable reports whether an error of a call says that the process could not serve it, so that another one may. All
// other errors, such as a conflict, are answers that another process would give, too.
func unable(err error) bool {
	for _, kind := range []error{orbit.ErrUnknown, orbit.ErrUnavailable, lease.ErrUnheard, context.Canceled} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// send sends a request and reads the answer.
func (c *Client) send(ctx context.Context, url string, request, answer any) error {
	if len(c.URLs) == 0 {
		return fmt.Errorf("agent: %w: Client needs URLs", orbit.ErrInvalid)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("agent: %w: %w", orbit.ErrInvalid, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("agent: %w, nothing was sent: Client.URLs: %w", orbit.ErrUnavailable, err)
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := cmp.Or(c.HTTP, http.DefaultClient).Do(r)
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" { // there was no connection to send anything on
		return fmt.Errorf("agent: %w, nothing was sent: %w", orbit.ErrUnavailable, err)
	}
	if err != nil {
		return fmt.Errorf("agent: %w: %w", orbit.ErrUnknown, err)
	}
	text, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer))
	if err = errors.Join(err, got.Body.Close()); err != nil {
		return fmt.Errorf("agent: %w: %w", orbit.ErrUnknown, err)
	}
	switch got.StatusCode {
	case http.StatusOK:
		err = json.Unmarshal(text, answer)
	case http.StatusUnprocessableEntity:
		var f fault
		if err = json.Unmarshal(text, &f); err == nil && f.Text != "" {
			return f.err()
		}
		err = cmp.Or(err, fmt.Errorf("it names no error: %.200s", text))
	default:
		err = fmt.Errorf("%s: %.200s", got.Status, text)
	}
	if err != nil { // the request may have had its effect
		return fmt.Errorf("agent: %w: answer of %s: %w", orbit.ErrUnknown, r.URL, err)
	}
	return nil
}
