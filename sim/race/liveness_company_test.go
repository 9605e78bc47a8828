package race_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/sim/race"
)

// stripped returns commitments with all specs in them without some of their rules.
func stripped(do []orbit.Commitment, strip func(*orbit.Spec)) (out []orbit.Commitment) {
	bare := func(s *orbit.Spec) *orbit.Spec {
		if s == nil {
			return nil
		}
		s = s.Clone()
		strip(s)
		return s
	}
	for _, c := range do {
		switch do := c.(type) {
		case orbit.Submit:
			do.Spec = bare(do.Spec)
			if do.Gang != nil {
				do.Gang = do.Gang.Clone()
				for i := range do.Gang.Roles {
					do.Gang.Roles[i].Spec = bare(do.Gang.Roles[i].Spec)
				}
			}
			c = do
		case orbit.Respec:
			do.Spec = bare(do.Spec)
			c = do
		case orbit.Adopt:
			do.Spec = bare(do.Spec)
			c = do
		}
		out = append(out, c)
	}
	return out
}

// A ledger that forgets rules of company, also those that a spec gets later, is found by a recount at the commit of the
// placement, in worlds in which specs, groups and gangs change all the time.
func TestLivenessFindsForgottenCompany(t *testing.T) {
	scale.Sweep(t)
	for rule, strip := range map[string]func(*orbit.Spec){
		"not apart":      func(s *orbit.Spec) { s.Apart = nil },
		"not even":       func(s *orbit.Spec) { s.Even = nil },
		"not near":       func(s *orbit.Spec) { s.Near, s.Nears = orbit.Near{}, nil },
		"lacks an extra": func(s *orbit.Spec) { s.Extras = nil },
	} {
		t.Run(rule, func(t *testing.T) {
			l := &race.Liveness{Ledger: func() orbit.Ledger {
				return &lax{instead: func(_ *orbit.State, p orbit.Proposal) (commit, show, _ []orbit.Commitment) {
					return stripped(p.Do, strip), p.Do, nil
				}}
			}}
			found := map[string]int{}
			for seed := uint64(1); seed <= 400 && found[rule] == 0; seed++ {
				found[playWorld(t, l, seed).Rule()]++
			}
			assert.NotZero(t, found[rule], "found by %v", found)
		})
	}
}
