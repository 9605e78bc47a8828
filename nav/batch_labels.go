package nav

import (
	"slices"
	"strconv"
	"strings"

	"github.com/orbitsched/orbit"
)

// labelKinds divides nodes by the labels that specs require and by device model, so that what suits a spec is decided
// once for a kind. When there are too many kinds, what comes after is of kind 0, which suits every spec: that only
// loosens the bound.
type labelKinds struct {
	keys   []string
	models bool
	byText map[string]int
	// For each kind, for each class.
	suits [][]bool
	text  strings.Builder
}

const maxLabelKinds = 64

func newLabelKinds(classes []*batchClass) *labelKinds {
	k := &labelKinds{byText: map[string]int{}, suits: [][]bool{make([]bool, len(classes))}}
	for i, c := range classes {
		k.suits[0][i] = true
		k.models = k.models || len(c.spec.Devices.Models) > 0
		for j := range c.spec.Require {
			k.keys = append(k.keys, c.spec.Require[j].Key)
		}
	}
	slices.Sort(k.keys)
	k.keys = slices.Compact(k.keys)
	return k
}

// of returns the kind of a node.
func (k *labelKinds) of(n *orbit.Node, classes []*batchClass) int {
	k.text.Reset()
	for _, key := range k.keys {
		value, there := n.Labels[key]
		if !there {
			k.text.WriteByte('-')
			continue
		}
		k.text.WriteString(strconv.Itoa(len(value))) // so that no two lists of values read alike
		k.text.WriteByte(':')
		k.text.WriteString(value)
	}
	if k.models {
		k.text.WriteString(n.Devices.Model)
	}
	if kind, known := k.byText[k.text.String()]; known {
		return kind
	}
	if len(k.suits) > maxLabelKinds {
		return 0
	}
	fit := make([]bool, len(classes))
	for i, c := range classes {
		fit[i] = suits(n, c.spec)
	}
	k.suits = append(k.suits, fit)
	k.byText[k.text.String()] = len(k.suits) - 1
	return len(k.suits) - 1
}
