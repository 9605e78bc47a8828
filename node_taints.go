package orbit

import (
	"fmt"
	"slices"
	"time"
)

// Taint keeps capsules that do not tolerate it off a node ([Spec.Tolerate]); capsules that tolerate it may be placed
// there. Capsules that run on the node when it gets the taint keep running.
type Taint struct {
	// Key names the taint.
	Key string `json:"key"`
	// Value qualifies the key, as in "gpu" for the key "reserved".
	Value string `json:"value,omitempty"`
	// Effect is the effect on capsules that do not tolerate the taint. "NoSchedule": they are not placed on the node.
	// "PreferNoSchedule": score.Spread places them elsewhere if that is not much worse. "NoExecute": they are not
	// placed on the node, and those that run there may be moved away ([Evict]), as nav.Drain does; a capsule that
	// tolerates the taint for some time ([Toleration.For]) may be moved after that time.
	Effect string `json:"effect"`
}

// String returns the taint as in "reserved=gpu:NoSchedule".
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// Toleration permits the placement of a capsule on nodes with matching taints.
type Toleration struct {
	// Key is the key of the tolerated taints; empty: all keys, and then Op must be "Exists".
	Key string `json:"key,omitempty"`
	// Op is "Equal", which is the default, for taints with this Value, or "Exists" for taints of any value.
	Op string `json:"op,omitempty"`
	// Value is the value of the taints, for "Equal".
	Value string `json:"value,omitempty"`
	// Effect is the effect that is tolerated; empty: any.
	Effect string `json:"effect,omitempty"`
	// For is the time that a capsule stays on a node that gets a NoExecute taint before it may be moved away; 0: for
	// ever. It requires the Effect "NoExecute". Placements ignore it. No rule of a ledger reads a clock, so the program
	// that moves the capsule measures the time, as nav.Drain does.
	For time.Duration `json:"for,omitempty"`
}

// covers reports whether the toleration matches a taint.
func (o *Toleration) covers(t *Taint) bool {
	return (o.Key == "" || o.Key == t.Key) && (o.Op == "Exists" || o.Value == t.Value) && (o.Effect == "" || o.Effect == t.Effect)
}

// Admits reports whether the spec tolerates all taints of the node that forbid placements.
func (n *Node) Admits(s *Spec) bool { return n.keptOff(s) == nil }

// keptOff returns the first taint that forbids placements of the spec on the node; nil: there is none.
func (n *Node) keptOff(s *Spec) *Taint {
	for i := range n.Taints {
		if t := &n.Taints[i]; t.Effect != "PreferNoSchedule" && !s.Tolerates(t) {
			return t
		}
	}
	return nil
}

// Shuns returns the number of taints of the node that capsules of the spec should avoid (PreferNoSchedule).
func (n *Node) Shuns(s *Spec) (count int) {
	for i := range n.Taints {
		if t := &n.Taints[i]; t.Effect == "PreferNoSchedule" && !s.Tolerates(t) {
			count++
		}
	}
	return count
}

// expels reports whether the node has a taint because of which running capsules of the spec may be moved away.
func (n *Node) expels(s *Spec) bool {
	for i := range n.Taints {
		if _, forever := s.Withstands(&n.Taints[i]); n.Taints[i].Effect == "NoExecute" && !forever {
			return true
		}
	}
	return false
}

// keeps reports whether the condition and the taints of the node give no reason to move capsules of the spec away.
func (n *Node) keeps(s *Spec) bool { return n.Schedulable() && !n.expels(s) }

// taintFaults returns what is wrong with the taints of a node.
func (n *Node) taintFaults() (out []string) {
	if len(n.Taints) > maxTaints {
		return []string{fmt.Sprintf("%d taints; there can be %d", len(n.Taints), maxTaints)}
	}
	for _, t := range n.Taints {
		if t.Key == "" || !slices.Contains(taintEffects, t.Effect) {
			out = append(out, fmt.Sprintf("taint %.100q: it needs a key, and the effect must be NoSchedule, PreferNoSchedule or NoExecute", t.String()))
		}
	}
	return out
}
