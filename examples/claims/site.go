package main

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// site is the store of one pool's slots.
type site interface {
	claim.Source
	// grow adds n new slots.
	grow(ctx context.Context, n int) error
	// recycle makes a used slot idle again.
	recycle(ctx context.Context, s claim.Slot) error
	// doubled counts in the history how often a slot was given to a caller while another caller still had it.
	doubled(ctx context.Context) (int, error)
}

// names returns the names of n new slots, numbered after the *have existing ones.
func names(have *int, n int) (out []string) {
	for range n {
		*have++
		out = append(out, fmt.Sprintf("slot-%04d", *have))
	}
	return out
}

// staleSite is a store with a listing that lags behind.
type staleSite struct {
	*sim.StaleStore
	have int
}

func (s *staleSite) grow(_ context.Context, n int) error {
	s.Add(names(&s.have, n)...)
	return nil
}

// recycle replaces the slot with a new one of the same name.
func (s *staleSite) recycle(_ context.Context, used claim.Slot) error {
	s.Add(used.Name)
	return nil
}

func (s *staleSite) doubled(context.Context) (int, error) { return s.Doubled(), nil }

// ledgerSite is a site whose slots are nodes of a ledger of its own.
type ledgerSite struct {
	claim.LedgerSource
	have int
}

func (s *ledgerSite) grow(ctx context.Context, n int) error {
	var nodes []orbit.NodeID
	for _, name := range names(&s.have, n) {
		nodes = append(nodes, orbit.NodeID(name))
	}
	return s.Join(ctx, nodes...)
}

func (s *ledgerSite) recycle(ctx context.Context, used claim.Slot) error { return s.Return(ctx, used) }

// doubled replays the ledger's placements and releases.
func (s *ledgerSite) doubled(ctx context.Context) (n int, err error) {
	changes, err := s.Book().Changes(ctx, 0)
	if err != nil {
		return 0, err
	}
	users := map[orbit.NodeID]orbit.CapsuleID{}
	for _, c := range changes {
		switch do := c.Do.(type) {
		case orbit.Place:
			if users[do.Node] != "" {
				n++
			}
			users[do.Node] = do.Capsule
		case orbit.Release:
			if users[c.Node] == do.Capsule {
				delete(users, c.Node)
			}
		}
	}
	state, err := s.Book().Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	return n, state.Verify()
}
