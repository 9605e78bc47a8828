package harness

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/orbitsched/orbit"
)

// Text is JSON, in which equal values are equal.
func Text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// most is how many commitments, and how many bets, Describe names; longest is how long each may be.
const most, longest = 4, 200

// Describe names what a proposal wants, in a few words.
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
