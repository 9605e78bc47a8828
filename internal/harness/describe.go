package harness

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/orbitsched/orbit"
)

// Text returns a value as JSON, so that equal values have equal texts.
func Text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// most is the number of commitments, and of bets, that Describe names; longest is the largest length of each, in bytes.
const most, longest = 4, 200

// Describe returns a short text of the commitments and bets of a proposal.
func Describe(p orbit.Proposal) string {
	var words []string
	for i, c := range p.Do {
		if i == most {
			words = append(words, fmt.Sprintf("... (%d commitments)", len(p.Do)))
			break
		}
		words = append(words, short(strings.TrimPrefix(fmt.Sprintf("%T%s", c, Text(c)), "orbit.")))
	}
	bets := []string{strings.Join(words, ", ")}
	for i, bet := range p.If {
		if i == most {
			bets = append(bets, fmt.Sprintf(" ... (%d bets)", len(p.If)))
			break
		}
		bets = append(bets, short(fmt.Sprintf(" if %T%v", bet, bet)))
	}
	return "proposal (" + strings.Join(bets, "") + ")"
}

func short(text string) string {
	if len(text) > longest {
		return text[:longest] + "..."
	}
	return text
}
