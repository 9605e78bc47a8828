package navtest_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/navtest"
	"github.com/orbitsched/orbit/place"
)

// watcher is a navigator that ends when its context does. In which way it looks at the context is a variant.
type watcher struct {
	placement place.Indexed
	draft     orbit.Draft
	// watch is called when a plan begins. It returns a function that returns an error after the context has ended, and
	// one that is called when the plan ends.
	watch func(context.Context) (ended func() error, leave func())
	// last says that Plan looks once more when all is planned; empty that a plan which is cut short holds nothing.
	last, empty bool
}

func (p *watcher) Claims(_ string, class orbit.AppClass) bool { return class < orbit.GangClass }

func (p *watcher) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	ended, leave := p.watch(ctx)
	defer leave()
	p.draft.Sync(view)
	for _, c := range pending {
		if err := ended(); err != nil && p.empty {
			return orbit.Plan{}, err
		} else if err != nil {
			return plan, err
		}
		why := errors.New("a member of a gang")
		if c.Gang() == "" {
			why = p.draft.PlaceBest(&p.placement, c)
		}
		if why != nil {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
			continue
		}
		plan.Proposals = append(plan.Proposals, p.draft.Propose())
	}
	if p.last {
		err = ctx.Err()
	}
	return plan, err
}

// Whichever way of looking at a context Go offers, a navigator that ends by it passes.
func TestWaysToLookAtAContext(t *testing.T) {
	type ended = func() error
	none := func() {}
	onErr := func(ctx context.Context) (ended, func()) { return ctx.Err, none }
	onDone := func(ctx context.Context) (ended, func()) {
		done := ctx.Done()
		return func() error {
			select {
			case <-done:
				return context.Canceled
			default:
				return nil
			}
		}, none
	}
	onDerived := func(ctx context.Context) (ended, func()) {
		own, cancel := context.WithTimeout(ctx, time.Hour)
		return own.Err, cancel
	}
	every := func(n int) func(context.Context) (ended, func()) {
		return func(ctx context.Context) (ended, func()) {
			i := 0
			return func() error {
				if i++; i%n == 0 {
					return ctx.Err()
				}
				return nil
			}, none
		}
	}
	for name, p := range map[string]watcher{
		"Err":                                 {watch: onErr},
		"Err, with an empty plan":             {watch: onErr, empty: true},
		"Err, and at the end":                 {watch: onErr, last: true},
		"Err for each hundredth capsule":      {watch: every(100)},
		"Err for each five hundredth capsule": {watch: every(500), last: true},
		"Done":                                {watch: onDone},
		"Done, and Err at the end":            {watch: onDone, last: true},
		"a derived context":                   {watch: onDerived},
		"a derived context, and at the end":   {watch: onDerived, last: true},
		"Cause": {watch: func(ctx context.Context) (ended, func()) {
			return func() error { return context.Cause(ctx) }, none
		}},
		"AfterFunc": {watch: func(ctx context.Context) (ended, func()) {
			var over atomic.Bool
			stop := context.AfterFunc(ctx, func() { over.Store(true) })
			return func() error { return overError(&over) }, func() { stop() }
		}},
		"another goroutine": {watch: func(ctx context.Context) (ended, func()) {
			var over atomic.Bool
			left := make(chan struct{})
			go func() {
				select {
				case <-ctx.Done():
					over.Store(true)
				case <-left:
					for range 30 { // a goroutine that outlives Plan may still look at the context
						time.Sleep(100 * time.Microsecond)
						_ = ctx.Err()
					}
				}
			}()
			return func() error { return overError(&over) }, func() { close(left) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, navtest.Suite{Worlds: 2}.Check(func() orbit.Navigator { fresh := watcher{watch: p.watch, last: p.last, empty: p.empty}; return &fresh }))
		})
	}
}

func overError(over *atomic.Bool) error {
	if over.Load() {
		return context.Canceled
	}
	return nil
}

// A navigator that refuses some nodes by a filter of its own passes if the suite knows the filter, and is told of
// Suite.Filter if not. The other rules hold as ever.
func TestFilter(t *testing.T) {
	for name, filter := range map[string]place.Filter{
		"by name": func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
			if strings.HasSuffix(string(n.Node.ID), "1") {
				return "are not ours"
			}
			return ""
		},
		"by what it runs": func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
			if n.Capsules >= 4 {
				return "run enough"
			}
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			filtering := func() orbit.Navigator { return &nav.Services{Placement: &place.Indexed{Filter: filter}} }
			navtest.Suite{Filter: filter, Worlds: worlds}.Run(t, filtering)
			judge(t, "exhaustion *", "set Suite.Filter", navtest.Suite{Worlds: worlds}.Check(filtering))
			suite := navtest.Suite{Filter: filter, Worlds: worlds}
			judge(t, "exhaustion *", "is said to fit nowhere", suite.Check(func() orbit.Navigator { return &plain{singles: true, breaks: "says NoFit of what it puts off"} }))
			judge(t, "liveness *", "is pending after 20 passes", suite.Check(func() orbit.Navigator { return &plain{singles: true, breaks: "places nothing"} }))
		})
	}
}
