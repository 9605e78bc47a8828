package orbit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestFaultsOfLabelsAreInOrder: an error that names several labels is the same each time.
func TestFaultsOfLabelsAreInOrder(t *testing.T) {
	labels := map[string]string{}
	for i := range 8 {
		labels[fmt.Sprintf("%d%s", i, strings.Repeat("k", 300))] = "v\xff" + fmt.Sprint(i)
	}
	c := newCourt(t, cpuNode("n", 1))
	first := c.refuses(ErrInvalid, Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"a"}, Spec: cpuSpec(1), Labels: labels}}}).Error()
	for range 20 {
		again := c.refuses(ErrInvalid, Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"a"}, Spec: cpuSpec(1), Labels: labels}}}).Error()
		assert.Equal(t, first, again)
	}
}
