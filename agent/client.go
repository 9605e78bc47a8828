package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Client is a [Control] for agents that do not run in the process of the ledger: it calls a [Handler] by HTTP. Set the
// fields before first use. If several processes serve a Handler and their leases share refreshes (see package lease),
// one URL may lead to any of them.
type Client struct {
	// URL is the address of the Handler, for example http://control:7070/agent. Required.
	URL string
	// HTTP makes the calls; default http.DefaultClient. If the Handler requires authentication, this client must do it.
	// It should have no Timeout, because each call has a context that ends.
	HTTP *http.Client
}

// Join implements [Control].
func (c *Client) Join(ctx context.Context, node orbit.Node, holder string) (Lease, error) {
	var got Lease
	return got, c.call(ctx, pathJoin, joinRequest{node, holder}, &got)
}

// Leave implements [Control].
func (c *Client) Leave(ctx context.Context, node orbit.NodeID, term orbit.Revision) error {
	return c.call(ctx, pathLeave, leaveRequest{node, term}, nil)
}

// Report implements [Control].
func (c *Client) Report(ctx context.Context, report orbit.Report) error {
	return c.call(ctx, pathReport, report, nil)
}

// Watch implements [Control]. It asks the Handler to answer within nine tenths of the time that ctx has left: a request
// that is answered leaves its connection usable, and a request that is cancelled does not.
func (c *Client) Watch(ctx context.Context, node orbit.NodeID, after orbit.Revision) (Work, error) {
	request := watchRequest{Node: node, After: after}
	if end, ok := ctx.Deadline(); ok {
		request.Wait = max(1, (time.Until(end) * 9 / 10).Milliseconds())
	}
	var work Work
	return work, c.call(ctx, pathWatch, request, &work)
}

// Confirm implements [Control]. All outcomes wrap [orbit.ErrUnknown] if the answer was lost, and [orbit.ErrUnavailable] if there was no
// connection to send the request on.
func (c *Client) Confirm(ctx context.Context, node orbit.NodeID, term orbit.Revision, said []Statement) []orbit.Outcome {
	var answers []outcome
	err := c.call(ctx, pathConfirm, confirmRequest{node, term, said}, &answers)
	if err == nil && len(answers) != len(said) {
		err = fmt.Errorf("agent: %w: %d outcomes for %d statements", orbit.ErrUnknown, len(answers), len(said))
	}
	out := make([]orbit.Outcome, len(said))
	for i := range out {
		if err != nil {
			out[i].Err = err
			continue
		}
		out[i] = orbit.Outcome{Revision: answers[i].Revision, Err: answers[i].Failure.err()}
	}
	return out
}

// call sends a request and reads the answer.
func (c *Client) call(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("agent: %w: %w", orbit.ErrInvalid, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("agent: %w: Client.URL: %w", orbit.ErrInvalid, err)
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
	switch {
	case got.StatusCode == http.StatusOK && answer == nil:
		return nil
	case got.StatusCode == http.StatusOK:
		err = json.Unmarshal(text, answer)
	case got.StatusCode == http.StatusUnprocessableEntity:
		var f fault
		if err = json.Unmarshal(text, &f); err == nil {
			return f.err()
		}
	default:
		err = fmt.Errorf("%s: %.200s", got.Status, text)
	}
	if err != nil { // the request may have had its effect
		return fmt.Errorf("agent: %w: answer of %s: %w", orbit.ErrUnknown, r.URL, err)
	}
	return nil
}
