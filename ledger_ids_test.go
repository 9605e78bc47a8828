package orbit

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestIDsOfOtherProposals: an id that was used for another proposal is refused as long as the history tells, and answered
// as committed afterwards; nothing is applied.
func TestIDsOfOtherProposals(t *testing.T) {
	id := func(do ...Commitment) Proposal { return Proposal{ID: idOf(7), Do: do} }
	claim := nominationOf("b", partOn("n", 1))
	gang := gangOf("gang", 0, "x", "y")
	for name, o := range map[string]struct{ first, second Proposal }{
		"another mark":    {id(Mark{Key: "k", Value: "1"}), id(Mark{Key: "k", Value: "2"})},
		"another kind":    {id(Mark{Key: "k", Value: "1"}), id(RemoveNode{Node: "n"})},
		"less":            {id(Mark{Key: "k", Value: "1"}, Mark{Key: "l", Value: "1"}), id(Mark{Key: "k", Value: "1"})},
		"the rest":        {id(Mark{Key: "k", Value: "1"}, Mark{Key: "l", Value: "1"}), id(Mark{Key: "l", Value: "1"})},
		"more":            {id(Mark{Key: "k", Value: "1"}), id(Mark{Key: "k", Value: "1"}, Mark{Key: "l", Value: "1"})},
		"another order":   {id(Mark{Key: "k", Value: "1"}, Mark{Key: "l", Value: "1"}), id(Mark{Key: "l", Value: "1"}, Mark{Key: "k", Value: "1"})},
		"another node":    {id(placeOn("a", "n")), id(placeOn("a", "m"))},
		"another capsule": {id(placeOn("a", "n")), id(placeOn("a", "n"), placeOn("b", "n"))},
		"another label":   {id(cpuNode("new", 1)), id(PutNode{Node{ID: "new", Capacity: Resources{CPU: 1}, Labels: map[string]string{"k": "v"}}})},
		"another spec":    {id(submitOf(cpuSpec(1), "new")), id(submitOf(cpuSpec(2), "new"))},
		"another member":  {id(gang), id(gangOf("gang", 0, "x", "z"))},
		"another claim":   {id(claim), id(nominationOf("b", partOn("m", 1)))},
	} {
		t.Run(name, func(t *testing.T) {
			c := court{t, &MemoryLedger{Bounds: Limits{NominatedShare: 100, History: 8}}}
			c.commits(cpuNode("n", 5), cpuNode("m", 5), submitOf(cpuSpec(1), "a", "b"))
			at, err := c.Propose(bg, o.first)
			require.NoError(t, err)
			r := c.refuses(ErrInvalid, o.second)
			require.ErrorContains(t, r, fmt.Sprintf("proposal id %s was committed at revision %d with other commitments", idOf(7), at))
			require.Equal(t, []Outcome{{at, nil}, {0, r}}, c.ProposeBatch(bg, []Proposal{o.first, o.second}))
			for range 8 {
				c.commits(Mark{Key: "later", Value: "v"})
			}
			before := textOf(c.live)
			got, err := c.Propose(bg, o.second)
			require.NoError(t, err)
			require.Equal(t, at, got, "the history no longer has it")
			require.Equal(t, before, textOf(c.live))
		})
	}
}

// TestRepetitionsAreKnown: what is sent again may differ from what was committed in form, in the times that it carries,
// and in what the ledger has skipped; then too it is the same proposal.
func TestRepetitionsAreKnown(t *testing.T) {
	c := widely(t, cpuNode("n", 4), cpuNode("m", 4), submitOf(rankedSpec(0, 2), "low", "lower"), submitOf(rankedSpec(5, 2), "high", "higher", "claims"))
	c.commits(placeOn("low", "n"), placeOn("lower", "n"))
	since := c.now().Capsule("low").PlacedAt
	made := c.commits(nominationOf("claims", partOn("m", 1)))
	c.commits(Nominate{Capsule: "claims", Since: made})
	for name, o := range map[string]struct{ first, again []Commitment }{
		"spared victims":               {[]Commitment{Evict{Capsule: "low", From: "n", Since: since, For: "high"}, Evict{Capsule: "lower", From: "n", Since: since, For: "high"}, placeOn("high", "n")}, nil},
		"an end that has come already": {[]Commitment{Nominate{Capsule: "claims", Since: made}, nominationOf("higher", partOn("m", 1))}, nil},
		"other times":                  {[]Commitment{Submit{IDs: []CapsuleID{"t"}, Spec: cpuSpec(1), At: 1}, Place{Capsule: "t", Node: "m", At: 2}}, []Commitment{Submit{IDs: []CapsuleID{"t"}, Spec: cpuSpec(1), At: 3}, Place{Capsule: "t", Node: "m", At: 4}}},
		"empty lists": {[]Commitment{PutNode{Node{ID: "x"}}, Submit{IDs: []CapsuleID{"u"}, Spec: &Spec{}}}, []Commitment{PutNode{Node{ID: "x", Labels: map[string]string{}, Taints: []Taint{}, Extras: []Extra{}}},
			Submit{IDs: []CapsuleID{"u"}, Spec: &Spec{Require: []Predicate{}, Groups: []string{}}, Labels: map[string]string{}}}},
		"an adoption":  {[]Commitment{Adopt{Capsule: "v", Node: "m", Spec: cpuSpec(1), At: 1}}, []Commitment{Adopt{Capsule: "v", Node: "m", Spec: cpuSpec(1), At: 2}}},
		"another zone": {[]Commitment{Hold{ID: "h", Node: "m", Room: Resources{CPU: 1}, Ends: time.Unix(1e9, 0).UTC()}}, []Commitment{Hold{ID: "h", Node: "m", Room: Resources{CPU: 1}, Ends: time.Unix(1e9, 0).In(time.FixedZone("x", 3600))}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Proposal{ID: NewProposalID(), View: c.now().Revision(), Do: o.first}
			at, err := c.Propose(bg, p)
			require.NoError(t, err)
			follower := &MemoryLedger{}
			changes, err := c.Changes(bg, 0)
			require.NoError(t, err)
			text, err := json.Marshal(changes)
			require.NoError(t, err)
			var read []Change
			require.NoError(t, json.Unmarshal(text, &read))
			require.NoError(t, follower.Apply(read))
			for _, do := range [][]Commitment{o.first, o.again} {
				if p.Do = do; do == nil {
					continue
				}
				for _, l := range []*MemoryLedger{c.MemoryLedger, follower} {
					again, err := l.Propose(bg, p)
					require.NoError(t, err)
					require.Equal(t, at, again)
				}
			}
		})
	}
}
