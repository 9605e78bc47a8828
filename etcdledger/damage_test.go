package etcdledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// TestDecode: text that is no value of a kind is an error, never a panic, and never half a value.
func TestDecode(t *testing.T) {
	t.Parallel()
	good := `{"v":1,"node":{"id":"n","capacity":[1,0,0,0,0,0,0,0],"devices":{}}}`
	_, err := decode[nodeRecord]([]byte(good), 3)
	require.NoError(t, err)
	for name, text := range spoiled(good) {
		_, err := decode[nodeRecord]([]byte(text), 3)
		require.Error(t, err, name)
	}
	k := keys{"orbit/"}
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(rapid.OneOf(rapid.String(), rapid.Custom(jsonLike)).Draw(t, "text"))
		tables := newTables(k)
		for _, kind := range kinds {
			_ = tables.file(ref{kind, "x"}, text, 3)
		}
		_, _ = decodeEntry(text, 3)
		_, _ = decode[metaRecord](text, 3)
	})
}

// jsonLike draws text that looks like a record.
func jsonLike(t *rapid.T) string {
	fields := []string{`"v":1`}
	values := []string{"1", "-1", "null", `"x"`, "{}", "[]", "1e30", "99999999999999999999", `{"id":"x"}`, `[{"id":"00"}]`, "true", `{"id":"x","roles":[null]}`}
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		name := rapid.SampledFrom([]string{"node", "spec", "gang", "hold", "value", "placed", "capsules", "used", "by", "commits", "limits", "seq", "devices"}).Draw(t, "name")
		fields = append(fields, fmt.Sprintf("%q:%s", name, rapid.SampledFrom(values).Draw(t, "value")))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// spoiled returns values that are none any more.
func spoiled(good string) map[string]string {
	return map[string]string{
		"empty": "", "garbage": "\x00\xff{", "null": "null", "list": "[]", "number": "7", "cut": good[:len(good)-2],
		"other version":      strings.Replace(good, `"v":1`, `"v":2`, 1),
		"no version":         strings.Replace(good, `"v":1,`, ``, 1),
		"unknown field":      strings.Replace(good, `"v":1`, `"v":1,"colour":"red"`, 1),
		"text behind":        good + " x",
		"value behind":       good + good,
		"too long":           strings.Repeat(" ", maxValue) + good,
		"huge":               strings.Replace(good, `"v":1`, `"v":123456789012345678901234567890`, 1),
		"wrong type":         strings.Replace(good, `"v":1`, `"v":"1"`, 1),
		"unknown field deep": strings.Replace(good, `{"v":1`, `{"v":1,"node":{"x":1},"spec":{"x":1},"gang":{"x":1},"hold":{"x":1},"value":{"x":1},"x":1`, 1),
	}
}

// populateDamage makes a world with a record of every kind about n0, and n1 beside it.
func populateDamage(d *desk, l *Ledger) {
	n := node("n0", 10)
	n.Node.Devices = orbit.Devices{Model: "T4", Count: 4}
	d.do(l, n, node("n1", 10))
	d.do(l, submit("c0", "c1", "c2"), orbit.Submit{IDs: []orbit.CapsuleID{"dev"}, Spec: &orbit.Spec{Devices: orbit.DeviceRequest{Count: 1, Milli: 500}}})
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{1}}}
	d.do(l, orbit.Submit{Gang: &orbit.Gang{ID: "g0", Roles: []orbit.Role{{Name: "r", Spec: spec, Members: []orbit.CapsuleID{"m0", "m1"}}}}})
	_, err := l.Propose(bg, orbit.Proposal{ID: idOf(1), Do: []orbit.Commitment{
		orbit.Place{Capsule: "c0", Node: "n0"}, orbit.Place{Capsule: "m0", Node: "n0"}, orbit.Place{Capsule: "m1", Node: "n0"},
		orbit.Place{Capsule: "dev", Node: "n0", Devices: 1},
	}})
	require.NoError(d, err)
	_, err = l.Propose(bg, orbit.Proposal{ID: idOf(2), Do: []orbit.Commitment{
		orbit.Hold{ID: "h0", Node: "n0", Room: orbit.Resources{1}, Ends: time.Unix(1e9, 0)}, orbit.Mark{Key: "k0", Value: "v"},
	}})
	require.NoError(d, err)
}

// damaged are the records of populateDamage, and what touches them.
var damaged = map[ref]orbit.Commitment{
	{kindNode, "n0"}:                 nil,
	{kindUse, "n0"}:                  orbit.Place{Capsule: "c1", Node: "n0"},
	{kindCapsule, "c0"}:              orbit.Release{Capsule: "c0"},
	{kindCapsule, "m0"}:              orbit.Release{Capsule: "m1"},
	{kindGang, "g0"}:                 orbit.Release{Capsule: "m0"},
	{kindHold, "h0"}:                 orbit.Release{Hold: "h0"},
	{kindMark, "k0"}:                 orbit.Mark{Key: "k0", Value: "w"},
	{kindProposal, idOf(2).String()}: nil,
}

// TestDamage: a record that cannot be decoded, of any kind, closes its node alone, and is reported; whoever sees
// it happen and whoever finds it there know the same; the right value heals it.
func TestDamage(t *testing.T) {
	for r, touches := range damaged {
		for _, how := range []string{"empty", "garbage", "null", "other version", "unknown field", "text behind", "wrong type"} {
			t.Run(string(r.kind)+r.id[:2]+how, func(t *testing.T) {
				bubble(t, 1, Options{SweepEvery: -1}, func(d *desk) {
					l := d.ledgers[0]
					populateDamage(d, l)
					key := l.keys.of(r)
					good := d.store.value(key)
					require.NotEmpty(d, good)
					d.store.write(key, spoiled(good)[how])
					d.isolated(l, r, touches)
					d.store.write(key, good)
					synctest.Wait()
					require.Zero(d, l.Stats().Damaged)
					require.False(d, d.look(l).Node("n0").Node.Unschedulable)
					d.do(l, orbit.Place{Capsule: "c2", Node: "n0"})
					d.agree()
				})
			})
		}
	}
}

// isolated says that a record is damaged, and that all else goes on.
func (d *desk) isolated(l *Ledger, r ref, touches orbit.Commitment) {
	d.Helper()
	synctest.Wait()
	require.Positive(d, l.Stats().Damaged)
	require.True(d, d.reported(l.keys.of(r)), "%v was not reported", r)
	d.agree()
	onNode := r.kind != kindMark && r.kind != kindProposal && r.kind != kindGang
	if onNode {
		require.True(d, d.look(l).Node("n0").Node.Unschedulable, "the node is open")
	}
	if touches != nil {
		_, err := l.Propose(bg, orbit.Proposal{Do: []orbit.Commitment{touches}})
		require.ErrorIs(d, err, ErrCorrupt)
		require.ErrorIs(d, err, orbit.ErrUnavailable)
	}
	d.do(l, orbit.Place{Capsule: "c1", Node: "n1"})
	d.do(d.open(Options{SweepEvery: -1}), orbit.Release{Capsule: "c1"})
	d.agree()
}

// reported returns whether the damage of a key was told to OnError.
func (d *desk) reported(key string) bool {
	for {
		select {
		case err := <-d.errors:
			var c *CorruptError
			if errors.As(err, &c) && c.Key == key {
				return true
			}
		default:
			return false
		}
	}
}

// edit changes a field of a record.
func edit(t testing.TB, text string, change func(map[string]any)) string {
	var record map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &record))
	change(record)
	out, err := json.Marshal(record)
	require.NoError(t, err)
	return string(out)
}

// TestNonsense: values that can be decoded and make no sense, alone or together, close their node alone too.
func TestNonsense(t *testing.T) {
	set := func(field string, value any) func(map[string]any) {
		return func(r map[string]any) { r[field] = value }
	}
	spec := func(field string, value any) func(map[string]any) {
		return func(r map[string]any) { r["spec"].(map[string]any)[field] = value }
	}
	for name, c := range map[string]struct {
		of   ref
		edit func(map[string]any)
	}{
		"capsule placed in the future":  {ref{kindCapsule, "c0"}, set("placed", []any{map[string]any{"at": 1 << 40}})},
		"capsule with too many devices": {ref{kindCapsule, "c0"}, set("devices", 3)},
		"capsule without its devices":   {ref{kindCapsule, "dev"}, set("devices", 0)},
		"capsule on no node":            {ref{kindCapsule, "c0"}, set("node", "nowhere")},
		"capsule released and placed":   {ref{kindCapsule, "c0"}, set("released", true)},
		"capsule of no gang":            {ref{kindCapsule, "c0"}, set("gang", "nobody's")},
		"capsule of another gang":       {ref{kindCapsule, "c0"}, set("gang", "g0")},
		"capsule submitted in future":   {ref{kindCapsule, "c0"}, set("submitted", 1<<62)},
		"capsule with a huge spec":      {ref{kindCapsule, "c0"}, spec("envelope", map[string]any{"reservation": []int64{1 << 62}})},
		"capsule that takes more":       {ref{kindCapsule, "c0"}, spec("envelope", map[string]any{"reservation": []int64{9}})},
		"capsule with a negative spec":  {ref{kindCapsule, "c0"}, spec("envelope", map[string]any{"reservation": []int64{-5}})},
		"node used in the future":       {ref{kindUse, "n0"}, set("usage", 1<<40)},
		"node with a wrong count":       {ref{kindUse, "n0"}, set("capsules", 1)},
		"node with negative counts":     {ref{kindUse, "n0"}, set("holds", -1)},
		"node with a wrong sum":         {ref{kindUse, "n0"}, set("used", []int64{1})},
		"node that has left":            {ref{kindUse, "n0"}, set("gone", true)},
		"node with negative capacity":   {ref{kindNode, "n0"}, set("node", map[string]any{"id": "n0", "capacity": []int64{-1}})},
		"node by another name":          {ref{kindNode, "n0"}, set("node", map[string]any{"id": "n1"})},
		"gang without roles":            {ref{kindGang, "g0"}, set("gang", map[string]any{"id": "g0"})},
		"gang by another name":          {ref{kindGang, "g0"}, set("gang", map[string]any{"id": "g1"})},
		"gang with other members": {ref{kindGang, "g0"}, func(r map[string]any) {
			role := r["gang"].(map[string]any)["roles"].([]any)[0].(map[string]any)
			role["members"] = []string{"m0", "c0"}
		}},
		"hold without an end":    {ref{kindHold, "h0"}, func(r map[string]any) { r["hold"].(map[string]any)["ends"] = "0001-01-01T00:00:00Z" }},
		"hold on no node":        {ref{kindHold, "h0"}, func(r map[string]any) { r["hold"].(map[string]any)["node"] = "nowhere" }},
		"hold of more":           {ref{kindHold, "h0"}, func(r map[string]any) { r["hold"].(map[string]any)["room"] = []int64{1 << 62} }},
		"hold of sick devices":   {ref{kindHold, "h0"}, func(r map[string]any) { h := r["hold"].(map[string]any); h["devices"], h["milli"] = 1<<15, 1000 }},
		"mark with a long value": {ref{kindMark, "k0"}, set("value", strings.Repeat("x", 1<<14))},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, Options{SweepEvery: -1}, func(d *desk) {
				l := d.ledgers[0]
				populateDamage(d, l)
				key := l.keys.of(c.of)
				good := d.store.value(key)
				d.store.write(key, edit(d, good, c.edit))
				synctest.Wait()
				fresh, err := Open(bg, d.store.client(&plan{}), Options{SweepEvery: -1, OnError: func(error) {}})
				require.NoError(d, err, "one record keeps everybody out")
				d.ledgers = append(d.ledgers, fresh)
				require.Empty(d, differ(textOf(d.look(l), same), textOf(d.look(fresh), same)))
				require.Positive(d, l.Stats().Damaged)
				d.do(l, orbit.Place{Capsule: "c1", Node: "n1"})
				d.store.write(key, good)
				synctest.Wait()
				require.Zero(d, l.Stats().Damaged)
				d.do(fresh, orbit.Place{Capsule: "c2", Node: "n0"})
				d.agree()
			})
		})
	}
}

// TestLostRecords: a record that somebody deletes is missed where it can be, and otherwise never was.
func TestLostRecords(t *testing.T) {
	for r := range damaged {
		t.Run(string(r.kind)+r.id[:2], func(t *testing.T) {
			bubble(t, 1, Options{SweepEvery: -1}, func(d *desk) {
				l := d.ledgers[0]
				populateDamage(d, l)
				good := d.store.value(l.keys.of(r))
				d.store.erase(l.keys.of(r))
				synctest.Wait()
				d.agree()
				if r.kind == kindNode || r.kind == kindUse || r.kind == kindCapsule || r.kind == kindHold {
					require.True(d, d.look(l).Node("n0").Node.Unschedulable, "nobody misses it")
				}
				d.do(l, orbit.Place{Capsule: "c1", Node: "n1"})
				d.store.write(l.keys.of(r), good)
				synctest.Wait()
				require.Zero(d, l.Stats().Damaged)
				d.agree()
			})
		})
	}
}

// TestRepair: what cannot be put back is given up, and the node opens again, everywhere.
func TestRepair(t *testing.T) {
	bubble(t, 2, Options{SweepEvery: -1}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		populateDamage(d, a)
		require.ErrorIs(d, a.Repair(bg, "n0"), orbit.ErrInvalid)
		d.store.erase(a.keys.of(ref{kindCapsule, "c0"}))
		synctest.Wait()
		require.True(d, d.look(b).Node("n0").Node.Unschedulable)
		require.NoError(d, a.Repair(bg, "n0"))
		synctest.Wait()
		d.agree()
		require.Zero(d, b.Stats().Damaged)
		require.False(d, d.look(b).Node("n0").Node.Unschedulable)
		require.Equal(d, 3, d.look(b).Node("n0").Capsules)
		d.do(b, orbit.Place{Capsule: "c2", Node: "n0"})
		d.store.write(a.keys.of(ref{kindNode, "n0"}), "garbage")
		synctest.Wait()
		require.True(d, d.look(a).Node("n0").Node.Unschedulable)
		d.do(a, node("n0", 20)) // describes it anew
		require.False(d, d.look(b).Node("n0").Node.Unschedulable)
		synctest.Wait()
		require.Zero(d, a.Stats().Damaged+b.Stats().Damaged)
		d.agree()
	})
}

// TestRepairGivesAwayNothing: as long as it is not known what runs on a node its count is not repaired, and
// neither is one that says more than there is room for. Such a node stays closed, and nobody else is concerned.
func TestRepairGivesAwayNothing(t *testing.T) {
	bubble(t, 2, Options{SweepEvery: -1}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		populateDamage(d, a)
		lost, count := a.keys.of(ref{kindCapsule, "c0"}), a.keys.of(ref{kindUse, "n0"})
		good := d.store.value(lost)
		d.store.write(lost, `{"v":9}`)
		synctest.Wait()
		require.ErrorIs(d, a.Repair(bg, "n0"), ErrCorrupt, "what cannot be read may run there")
		require.ErrorContains(d, a.Repair(bg, "nowhere"), "there is no node")
		d.store.erase(lost)
		synctest.Wait()
		require.NoError(d, a.Repair(bg, "n0"))
		synctest.Wait()

		used := d.look(b).Node("n0").Used()[0]
		d.do(a, node("n0", used+d.look(a).Capsule("c2").Spec.Envelope.Reservation[0]))
		d.do(a, orbit.Place{Capsule: "c2", Node: "n0"})
		synctest.Wait()
		d.store.write(lost, good) // it is there again, and its room is not
		synctest.Wait()
		require.ErrorContains(d, b.Repair(bg, "n0"), "delete the records")
		d.store.write(count, edit(d, d.store.value(count), func(r map[string]any) {
			n := d.look(b).Node("n0")
			r["capsules"], r["used"] = n.Capsules, n.Used()
		}))
		synctest.Wait()
		require.True(d, d.look(b).Node("n0").Node.Unschedulable)
		fresh, err := Open(bg, d.store.client(&plan{}), Options{SweepEvery: -1})
		require.NoError(d, err, "one node keeps everybody out")
		d.ledgers = append(d.ledgers, fresh)
		d.do(fresh, orbit.Place{Capsule: "c1", Node: "n1"})

		d.store.erase(lost)
		synctest.Wait()
		require.NoError(d, b.Repair(bg, "n0"))
		synctest.Wait()
		require.Zero(d, a.Stats().Damaged+b.Stats().Damaged)
		d.agree()
	})
}

// TestForeignLog: a log that is no commit, or is deleted, makes everybody read the records again.
func TestForeignLog(t *testing.T) {
	bubble(t, 2, Options{}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		populateDamage(d, a)
		for _, text := range []string{"garbage", `{"v":1,"by":"x","number":1,"commits":[]}`, `{"v":1,"by":"x","number":1,"commits":[{"do":[{}]}]}`,
			`{"v":1,"by":"x","number":1,"commits":[{"do":[{"do":{"place":{"capsule":"nobody","node":"n0"}}}]}]}`} {
			was := b.Stats().Reloads
			d.store.write(a.keys.log(), text)
			synctest.Wait()
			require.Greater(d, b.Stats().Reloads, was, text)
			d.agree()
		}
		d.store.erase(a.keys.log())
		synctest.Wait()
		d.do(b, orbit.Place{Capsule: "c1", Node: "n1"})
		d.agree()
		rev := d.do(a, orbit.Mark{Key: "x", Value: "y"})
		d.look(b)
		changes, err := b.Changes(bg, rev-1)
		require.NoError(d, err)
		require.Len(d, changes, 1)
		_, err = b.Changes(bg, 1)
		require.ErrorIs(d, err, orbit.ErrCompacted)
	})
}

// TestSmallerMaxOps: who has room for less than the ledger takes cannot open it, and is told so.
func TestSmallerMaxOps(t *testing.T) {
	bubble(t, 1, Options{SweepEvery: -1}, func(d *desk) {
		_, err := Open(bg, d.store.client(&plan{}), Options{SweepEvery: -1, MaxOps: 64})
		require.ErrorIs(d, err, ErrMismatch)
		require.ErrorContains(d, err, "--max-txn-ops")
	})
}
