package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// creator is a client of the gateway. It keeps some sandboxes, and deletes a random one when it has more. When it is
// refused, it waits and asks again under a new id, as a client of an API does.
type creator struct {
	platform *platform
	name     string
	keep     int
	rand     *rand.Rand
	asked    int
	own      []sandbox.Created

	// phases has the counts of each phase.
	phases map[*phase]*tally
}

// tally has the counts of a number of creates.
type tally struct {
	created, warm, promised, lies, retried int
	volumes, forks, deleted                int
	refused                                int
	decisions                              []time.Duration
}

func newCreator(p *platform, i int) *creator {
	o := p.options
	return &creator{
		platform: p, name: fmt.Sprintf("creator-%04d", i), phases: map[*phase]*tally{},
		keep: o.hosts * o.slots * 6 / 10 / o.creators,
		rand: rand.New(rand.NewPCG(o.seed, uint64(i))),
	}
}

// work creates a sandbox whenever the phase has another one due.
func (c *creator) work(ctx context.Context, ph *phase) error {
	t := &tally{}
	c.phases[ph] = t
	for ph.next(ctx) {
		if err := c.create(ctx, ph, t); err != nil {
			return err
		}
		for len(c.own) > c.keep {
			if err := c.deleteOne(ctx, t); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// create asks until it gets a sandbox. Before each try it chooses again which sandbox to fork, because that sandbox may
// have been lost meanwhile.
func (c *creator) create(ctx context.Context, ph *phase, t *tally) error {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		c.asked++
		spec := c.draw()
		made, err := c.platform.gateway.Create(ctx, orbit.CapsuleID(fmt.Sprintf("%s-%06d", c.name, c.asked)), spec)
		if err == nil {
			c.own = append(c.own, made)
			t.add(&made)
			ph.created.Add(1)
			if made.Warm {
				ph.warm.Add(1)
			}
			return nil
		}
		kind := refusal(err)
		if kind == nil || time.Since(began) > patience {
			return fmt.Errorf("%s, after %v: %w", c.name, time.Since(began).Round(time.Millisecond), err)
		}
		t.refused++
		c.platform.noteRefusal(kind, err)
		if errors.Is(err, sandbox.ErrNoSlot) && len(c.own) > 0 {
			if err := c.deleteOne(ctx, t); err != nil {
				return err
			}
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// draw returns a random spec: usually a fresh sandbox, sometimes one with a volume, or a fork of one of the creator's
// own.
func (c *creator) draw() *orbit.Spec {
	start := orbit.Start{Template: templates[min(c.rand.IntN(10)/4, len(templates)-1)]}
	switch n := c.rand.IntN(100); {
	case n < 5:
		v, template := c.platform.fleet.aVolume(c.rand)
		start.Volumes, start.Template = []string{v}, template
	case n < 15 && len(c.own) > 0:
		parent := c.own[c.rand.IntN(len(c.own))]
		start.Template, start.Parent = parent.Spec.Start.Template, parent.Capsule
		start.CrossHost = n < 8 && c.platform.options.hosts > len(templates)
	}
	return &orbit.Spec{Module: "sandbox", Start: start}
}

// deleteOne stops a sandbox and gives its slot back. If the sandbox has lost its host meanwhile, it runs elsewhere, and
// the host there finds in the ledger that it has left.
func (c *creator) deleteOne(ctx context.Context, t *tally) error {
	i := c.rand.IntN(len(c.own))
	made := c.own[i]
	c.own = slices.Delete(c.own, i, i+1)
	c.platform.fleet.byID[made.Node].stop(made.Capsule)
	if err := c.platform.gateway.Delete(ctx, made.Capsule); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	t.deleted++
	return nil
}

// add counts a create.
func (t *tally) add(made *sandbox.Created) {
	t.created++
	start := &made.Spec.Start
	for _, count := range []struct {
		n  *int
		is bool
	}{
		{&t.warm, made.Warm}, {&t.promised, made.Promised}, {&t.lies, made.Promised && !made.Warm},
		{&t.retried, made.Retried}, {&t.volumes, len(start.Volumes) > 0}, {&t.forks, start.Parent != ""},
	} {
		if count.is {
			*count.n++
		}
	}
	t.decisions = append(t.decisions, made.Decision)
}

// merge adds another tally.
func (t *tally) merge(o *tally) {
	t.created += o.created
	t.warm += o.warm
	t.promised += o.promised
	t.lies += o.lies
	t.retried += o.retried
	t.volumes += o.volumes
	t.forks += o.forks
	t.deleted += o.deleted
	t.refused += o.refused
	t.decisions = append(t.decisions, o.decisions...)
}
