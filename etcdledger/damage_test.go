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

// TestDecode: decoding any text as any record returns the record or an error, and never panics.
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

// jsonLike draws a text that resembles a record.
func jsonLike(t *rapid.T) string {
	fields := []string{`"v":1`}
	values := []string{"1", "-1", "null", `"x"`, "{}", "[]", "1e30", "99999999999999999999", `{"id":"x"}`, `[{"id":"00"}]`, "true", `{"id":"x","roles":[null]}`}
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		name := rapid.SampledFrom([]string{"node", "spec", "gang", "hold", "value", "placed", "capsules", "used", "by", "commits", "limits", "seq", "devices"}).Draw(t, "name")
		fields = append(fields, fmt.Sprintf("%q:%s", name, rapid.SampledFrom(values).Draw(t, "value")))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// spoiled returns values that are not valid any more.
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

// populateDamage makes a record of every kind that concerns n0, and a second node n1.
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

// damaged are the records of populateDamage.
var damaged = []ref{
	{kindNode, "n0"}, {kindUse, "n0"}, {kindCapsule, "c0"}, {kindCapsule, "m0"}, {kindGang, "g0"}, {kindHold, "h0"}, {kindMark, "k0"},
	{kindProposal, idOf(2).String()},
}

// noGC are options of ledgers that delete nothing by themselves.
var noGC = Options{GCInterval: -1}

// TestDamage: a damaged record of any kind stops an open ledger and keeps a ledger from opening. Both errors have its
// key, and the right value heals both.
func TestDamage(t *testing.T) {
	for _, r := range damaged {
		for _, how := range []string{"empty", "garbage", "null", "other version", "unknown field", "text behind", "wrong type"} {
			t.Run(string(r.kind)+r.id[:2]+how, func(t *testing.T) {
				bubble(t, 1, noGC, func(d *desk) {
					l := d.ledgers[0]
					populateDamage(d, l)
					key := l.keys.of(r)
					good := d.store.value(key)
					require.NotEmpty(d, good)
					d.store.write(key, spoiled(good)[how])
					d.stopped(l)
					require.True(d, d.reported(key), "%v was not reported", r)
					_, err := Open(bg, d.store.client(&plan{}), noGC)
					require.ErrorIs(d, err, ErrCorrupt)
					require.ErrorContains(d, err, key)
					d.healed(l, key, good)
				})
			})
		}
	}
}

// stopped requires that a ledger fails all calls at once with the key of the damaged record.
func (d *desk) stopped(l *Ledger) {
	d.Helper()
	synctest.Wait()
	began := time.Now()
	_, err := l.Snapshot(bg)
	require.ErrorIs(d, err, ErrCorrupt)
	require.ErrorIs(d, err, orbit.ErrUnavailable)
	_, err = l.Propose(bg, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "other", Value: "v"}}})
	require.ErrorIs(d, err, ErrCorrupt)
	require.ErrorIs(d, err, orbit.ErrUnavailable)
	require.Less(d, time.Since(began), time.Second)
}

// healed requires that a ledger works again after a record has been put right.
func (d *desk) healed(l *Ledger, key, good string) {
	d.Helper()
	d.store.write(key, good)
	time.Sleep(3 * time.Second) // the time between two tries to read the records
	d.do(l, orbit.Place{Capsule: "c2", Node: "n0"})
	d.agree()
}

// reported reports whether OnError was called with the damage of a key.
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

// TestNonsense: values that can be decoded but contradict themselves or each other are damage too.
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
		"capsule of no gang":            {ref{kindCapsule, "c0"}, set("gang", "missing")},
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
			bubble(t, 1, noGC, func(d *desk) {
				l := d.ledgers[0]
				populateDamage(d, l)
				key := l.keys.of(c.of)
				good := d.store.value(key)
				d.store.write(key, edit(d, good, c.edit))
				d.stopped(l)
				_, err := Open(bg, d.store.client(&plan{}), noGC)
				require.ErrorIs(d, err, ErrCorrupt)
				d.healed(l, key, good)
			})
		})
	}
}

// TestLostRecords: the loss of a record is noticed if another record shows it. Otherwise the ledger is as if the record
// had never been.
func TestLostRecords(t *testing.T) {
	for _, r := range damaged {
		t.Run(string(r.kind)+r.id[:2], func(t *testing.T) {
			bubble(t, 1, noGC, func(d *desk) {
				l := d.ledgers[0]
				populateDamage(d, l)
				good := d.store.value(l.keys.of(r))
				d.store.erase(l.keys.of(r))
				synctest.Wait()
				if r.kind == kindMark || r.kind == kindProposal {
					d.agree()
				} else {
					d.stopped(l)
				}
				d.healed(l, l.keys.of(r), good)
			})
		})
	}
}

// repair repairs the records of a closed ledger and opens it.
func (d *desk) repair(giveUp ...string) []string {
	d.Helper()
	changed, err := Repair(bg, d.store.client(&plan{}), noGC, giveUp...)
	require.NoError(d, err)
	l := d.open(noGC)
	d.agree()
	require.NoError(d, l.Close())
	d.ledgers = nil
	return changed
}

// closed makes the records of populateDamage and closes the ledger.
func (d *desk) closed() keys {
	d.Helper()
	l := d.ledgers[0]
	populateDamage(d, l)
	require.NoError(d, l.Close())
	d.ledgers = nil
	return l.keys
}

// TestRepair: Repair makes a node's count anew, and a lost description as one that is cordoned and has no capacity.
func TestRepair(t *testing.T) {
	bubble(t, 1, noGC, func(d *desk) {
		k := d.closed()
		require.Empty(d, d.repair(), "nothing is damaged")
		capsule, count, description := k.of(ref{kindCapsule, "c0"}), k.of(ref{kindUse, "n0"}), k.of(ref{kindNode, "n0"})
		d.store.erase(capsule)
		require.Equal(d, []string{count}, d.repair())
		for _, text := range []string{"garbage", ""} {
			d.store.write(count, text)
			require.Equal(d, []string{count}, d.repair())
			d.store.write(description, text)
			require.Equal(d, []string{description}, d.repair())
			d.store.erase(count)
			d.store.erase(description)
			require.Equal(d, []string{description, count}, d.repair())
		}
		l := d.open(noGC)
		n := d.look(l).Node("n0")
		require.False(d, n.Node.Schedulable())
		require.Equal(d, 3, n.Capsules)
		d.do(l, node("n0", 20))
		d.do(l, orbit.Place{Capsule: "c2", Node: "n0"})
		d.agree()
	})
}

// TestRepairGivesUpWhatItIsTold: Repair fails and changes nothing until each record that it cannot make anew has been
// put right or is given up.
func TestRepairGivesUpWhatItIsTold(t *testing.T) {
	for _, r := range damaged {
		if r.kind == kindNode || r.kind == kindUse {
			continue
		}
		t.Run(string(r.kind)+r.id[:2], func(t *testing.T) {
			bubble(t, 1, noGC, func(d *desk) {
				k := d.closed()
				d.store.write(k.of(r), "garbage")
				before := d.store.present()
				_, err := Repair(bg, d.store.client(&plan{}), noGC)
				require.ErrorIs(d, err, ErrCorrupt)
				require.ErrorContains(d, err, k.of(r))
				require.Equal(d, before, d.store.present())
				giveUp := []string{k.of(r)}
				if r.kind == kindGang { // the members of a lost gang are invalid without it
					giveUp = append(giveUp, k.of(ref{kindCapsule, "m0"}), k.of(ref{kindCapsule, "m1"}))
				}
				require.Subset(d, d.repair(giveUp...), giveUp)
				require.Subset(d, before, d.store.present())
			})
		})
	}
}

// TestRepairGivesAwayNothing: Repair fails if the records of a node take more than its capacity, until one of them is
// given up.
func TestRepairGivesAwayNothing(t *testing.T) {
	bubble(t, 1, noGC, func(d *desk) {
		k := d.closed()
		lost := k.of(ref{kindCapsule, "c0"})
		good := d.store.value(lost)
		d.store.write(lost, `{"v":9}`)
		d.repair(lost)
		l := d.open(noGC)
		used := d.look(l).Node("n0").Used()[0]
		d.do(l, node("n0", used+1))
		d.do(l, orbit.Place{Capsule: "c2", Node: "n0"})
		require.NoError(d, l.Close())
		d.ledgers = nil
		d.store.write(lost, good) // the record is back, but its capacity is in use
		_, err := Repair(bg, d.store.client(&plan{}), noGC)
		require.ErrorIs(d, err, ErrCorrupt)
		require.ErrorContains(d, err, `node "n0" is oversubscribed`)
		d.repair(lost)

		_, err = Repair(bg, d.store.client(&plan{}), noGC, "elsewhere")
		require.ErrorIs(d, err, orbit.ErrInvalid)
		_, err = Repair(bg, newStore().client(&plan{}), noGC)
		require.ErrorIs(d, err, ErrCorrupt, "there is no ledger")
	})
}

// TestForeignLog: a log that is no commit, or is deleted, makes every process read the records again.
func TestForeignLog(t *testing.T) {
	bubble(t, 2, Options{}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		populateDamage(d, a)
		for _, text := range []string{"garbage", `{"v":1,"by":"x","number":1,"commits":[]}`, `{"v":1,"by":"x","number":1,"commits":[{"do":[{}]}]}`,
			`{"v":1,"by":"x","number":1,"commits":[{"do":[{"do":{"place":{"capsule":"unknown","node":"n0"}}}]}]}`} {
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

// TestSmallerMaxOps: a ledger cannot be opened with a MaxOps that its limits do not fit into, and the error says so.
func TestSmallerMaxOps(t *testing.T) {
	bubble(t, 1, Options{GCInterval: -1}, func(d *desk) {
		_, err := Open(bg, d.store.client(&plan{}), Options{GCInterval: -1, MaxOps: 64})
		require.ErrorIs(d, err, ErrMismatch)
		require.ErrorContains(d, err, "--max-txn-ops")
	})
}
