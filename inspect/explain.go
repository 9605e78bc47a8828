package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/whatif"
)

// mostExplaining is the time limit for one explanation.
const mostExplaining = 10 * time.Second

// explanation says why a capsule or a gang waits, and which changes would help. For a placed capsule it only says where
// the capsule is, and for what it waits to begin.
type explanation struct {
	Revision orbit.Revision  `json:"revision"`
	Capsule  orbit.CapsuleID `json:"capsule,omitempty"`
	Gang     orbit.GangID    `json:"gang,omitempty"`
	Nodes    int             `json:"nodes,omitempty"`
	Fits     int             `json:"fits,omitempty"`
	// Says are reasons that hold whichever node is tried: that no node is that large, idle domains, missing quota,
	// a budget in the way.
	Says  []string `json:"says,omitempty"`
	Why   []why    `json:"why,omitempty"`
	Fixes []fix    `json:"fixes,omitempty"`
	// Failures says how often starts of the capsule have failed, and where; empty: none has.
	Failures string `json:"failures,omitempty"`
	// Failing lists nodes that fit and on which most starts have failed lately.
	Failing []string `json:"failing,omitempty"`
	// Trouble says that the ledger cannot be read, and how old the state is that is explained; nil: it can.
	Trouble *trouble `json:"trouble,omitempty"`
	// Text is the whole explanation as readable text.
	Text string `json:"text"`
}

// why counts the nodes that refuse a capsule for the same reasons, and names one of them.
type why struct {
	Nodes   int          `json:"nodes"`
	Reasons []string     `json:"reasons"`
	Example orbit.NodeID `json:"example"`
}

// fix is a change that would help to place the capsule or the gang.
type fix struct {
	Text string       `json:"text"`
	Node orbit.NodeID `json:"node,omitempty"`
}

// serveExplain explains a capsule or a gang. One explanation is made at a time, because each may look at all nodes.
func (h *Handler) serveExplain(w http.ResponseWriter, r *http.Request) {
	state, old := h.snapshot(w, r)
	if state == nil {
		return
	}
	select {
	case h.explaining <- struct{}{}:
		defer func() { <-h.explaining }()
	default:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "something else is being explained; ask again in a second")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), mostExplaining)
	defer cancel()
	ask := r.URL.Query()
	out := &explanation{Revision: state.Revision(), Capsule: orbit.CapsuleID(ask.Get("capsule")), Gang: orbit.GangID(ask.Get("gang")), Trouble: old}
	if h.Find != nil && out.Gang == "" && state.Capsule(out.Capsule) == nil {
		out.Capsule = h.Find(state, string(out.Capsule))
	}
	var err error
	switch c := state.Capsule(out.Capsule); {
	case out.Gang != "" && state.Gang(out.Gang) != nil:
		err = out.explainGang(ctx, state)
	case c != nil:
		err = out.explainCapsule(ctx, state, c)
	default:
		fail(w, http.StatusNotFound, "there is no such capsule or gang; it may have ended")
		return
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		fail(w, http.StatusGatewayTimeout, fmt.Sprintf("the explanation took longer than %v", mostExplaining))
	case err != nil:
		fail(w, http.StatusInternalServerError, textOf(err))
	default:
		answer(w, out)
	}
}

func (x *explanation) explainCapsule(ctx context.Context, state *orbit.State, c *orbit.Capsule) error {
	x.Failures = failuresOf(state, c)
	if c.Released() {
		x.Text = fmt.Sprintf("capsule %q has ended", c.ID)
		if most := c.Spec.Attempts; most > 0 && state.Failures(c.ID).Attempts >= most {
			x.Text += fmt.Sprintf(": all of its %d attempts have failed", most)
		}
		x.addFailures()
		return nil
	}
	if c.Placed() {
		x.Text = fmt.Sprintf("capsule %q is placed on node %q since revision %d", c.ID, c.Node, c.PlacedAt)
		for blocked, r := range state.Waiting() {
			if blocked == c {
				x.Text += fmt.Sprintf("; it may not begin until capsule %q has stopped on node %q, which it left at revision %d", r.Capsule, r.Node, r.Left)
			}
		}
		x.addFailures()
		return nil
	}
	e, err := whatif.Explain(ctx, state, c.Spec)
	if err != nil {
		return err
	}
	x.Nodes, x.Fits, x.Says, x.Failing, x.Text = e.Nodes, e.Fits, e.Says(), e.Failing, e.String()
	for i := range e.Why {
		out := why{Nodes: e.Why[i].Nodes, Example: e.Why[i].Example}
		for _, reason := range e.Why[i].Reasons {
			out.Reasons = append(out.Reasons, reason.String())
		}
		x.Why = append(x.Why, out)
	}
	x.addFailures()
	for i := range e.Fixes {
		x.Fixes = append(x.Fixes, fix{e.Fixes[i].String(), e.Fixes[i].Node})
	}
	return nil
}

// addFailures adds the failures to the text.
func (x *explanation) addFailures() {
	if x.Failures != "" {
		x.Text += "\n" + x.Failures
	}
}

// failuresOf says how often starts of a capsule have failed, and where; empty: none has.
func failuresOf(state *orbit.State, c *orbit.Capsule) string {
	f := state.Failures(c.ID)
	if len(f.Nodes) == 0 {
		return ""
	}
	text := "it has failed once"
	if f.Attempts != 1 {
		text = fmt.Sprintf("it has failed %d times", f.Attempts)
	}
	if f.InARow > 1 {
		text += fmt.Sprintf(", %d times in a row, so engines wait longer and longer before they place it again", f.InARow)
	}
	var nodes []string
	for _, at := range f.Nodes {
		where := fmt.Sprintf("node %q", at.Node)
		if at.At != 0 {
			where += " at " + at.At.Time().UTC().Format(time.RFC3339)
		}
		nodes = append(nodes, where)
	}
	return text + "; last it failed or could not begin on " + strings.Join(nodes, ", ")
}

func (x *explanation) explainGang(ctx context.Context, state *orbit.State) error {
	e, err := whatif.ExplainGang(ctx, state, x.Gang)
	if err != nil {
		return err
	}
	x.Failing, x.Text = e.Failing, e.String()
	for i := range e.Fixes {
		x.Fixes = append(x.Fixes, fix{Text: e.Fixes[i].String()})
	}
	return nil
}
