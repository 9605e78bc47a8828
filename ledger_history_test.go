package orbit

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// everyCommitment is one of each kind, with every field set that is written.
var everyCommitment = map[string]Commitment{
	"putNode": PutNode{Node{ID: "n", Capacity: Resources{CPU: 1}, Labels: map[string]string{"a": "b"},
		Devices: Devices{Model: "A", Count: 2, Unhealthy: 1}, State: Cordoned}},
	"removeNode": RemoveNode{Node: "n"},
	"submit":     Submit{IDs: []CapsuleID{"x", "y"}, Spec: &Spec{Module: "m", Group: "g", Near: Near{"g", "rack"}}, Owner: "o", At: 7, Labels: map[string]string{"a": "b"}},
	"gang":       Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: &Spec{}, Members: []CapsuleID{"x"}, Min: 1}}, Levels: []string{"rack"}}},
	"place":      Place{Capsule: "x", Node: "n", Devices: 3, Note: "warm", At: 9},
	"release":    Release{Capsule: "x", From: "n", Final: true},
	"endHold":    Release{Hold: "h"},
	"hold":       Hold{ID: "h", Node: "n", Room: Resources{CPU: 1}, Devices: 1, Milli: 5, For: "f", Ends: time.Unix(9, 7).UTC()},
	"ready":      Confirm{Capsule: "x", Since: 3, Ready: true},
	"notReady":   Confirm{Capsule: "x", Since: 3, NotReady: true},
	"respec":     Respec{Capsule: "x", Since: 3, Spec: &Spec{Module: "m"}, Applied: true},
	"adopt":      Adopt{Capsule: "x", Spec: &Spec{Module: "m"}, Node: "n", Devices: 3, Note: "found", At: 9},
	"protect":    Protect{Capsule: "x", For: time.Second},
	"unprotect":  Protect{Capsule: "x", Since: 3},
	"assign":     Assign{Capsule: "x", From: "a", Owner: "b"},
	"mark":       Mark{Key: "k", Value: "v"},
}

// What is written reads back equal, whatever the kind.
func TestChangesReadBack(t *testing.T) {
	for name, c := range everyCommitment {
		for _, change := range []Change{{Do: c}, {Revision: 1 << 60, Seq: 3, ID: ProposalID{0: 1, 15: 255}, Do: c, Node: "n"}} {
			text, err := json.Marshal(change)
			require.NoError(t, err)
			var back Change
			require.NoError(t, json.Unmarshal(text, &back), "%s: %s", name, text)
			require.Equal(t, change, back)
		}
	}
	text, err := json.Marshal(Change{Revision: 7, Do: everyCommitment["place"], Node: "n"})
	require.NoError(t, err)
	require.JSONEq(t, `{"revision":7,"do":{"place":{"capsule":"x","node":"n","devices":3,"note":"warm","at":9}},"node":"n"}`, string(text))
}

// What is no commitment is refused, in both directions, and changes nothing.
func TestChangesThatAreNone(t *testing.T) {
	for _, c := range []Commitment{nil, &Place{}, (*Mark)(nil)} {
		_, err := json.Marshal(Change{Do: c})
		require.ErrorIs(t, err, ErrInvalid)
	}
	before := Change{Revision: 5, Do: Mark{Key: "before"}, Node: "m"}
	for _, text := range []string{"", "null", "{}", "[]", "7", `{"do":null}`, `{"revision":1}`, `{"do":{}}`, `{"do":[]}`,
		`{"do":{"place":null}}`, `{"do":{"place":{},"mark":{}}}`, `{"do":{"place":{"capsule":"x"}}} {}`, `{"do":{"place":{"capsule":"x"}}} }`,
		`{"do":{"place":{"capsule":"x","nowhere":1}}}`, `{"do":{"launch":{}}}`, `{"do":{"place":{"capsule":7}}}`,
		`{"do":{"place":{"capsule":"x"}}`, `{"do":{"place":{}},"at":"n"}`, `{"do":{"place":{}},"revision":-1}`, `{"do":{"place":{}},"id":"7"}`} {
		after := before
		require.ErrorIs(t, after.UnmarshalJSON([]byte(text)), ErrInvalid, "%q", text)
		require.Equal(t, before, after)
	}
}

// Whatever is read, is written and read back as the same; nothing panics.
func FuzzChange(f *testing.F) {
	for _, c := range everyCommitment {
		text, err := json.Marshal(Change{Revision: 2, ID: ProposalID{1}, Do: c})
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c, again Change
		if err := c.UnmarshalJSON(text); err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		first, err := json.Marshal(c)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(first, &again))
		second, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, string(first), string(second))
		clone := Proposal{Do: []Commitment{c.Do}}.Clone()
		_ = clone.check(&Limits{})
	})
}
