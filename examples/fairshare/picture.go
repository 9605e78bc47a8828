package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode"
)

const (
	// perRow is how many GPUs a row of the picture is, and perColumn how many ticks a column is.
	perRow    = 8
	perColumn = 2
)

// column returns a column of the picture, from below.
func (s *sample) column() (out []rune) {
	total, at := nodes*perNode, 0.0
	fill := func(letter rune, gpus float64) {
		for at += gpus; len(out) < int(math.Round(at/perRow)); {
			out = append(out, letter)
		}
	}
	for _, q := range leaves {
		fill(q.letter, min(s.used[q.id], float64(q.nominal)))
	}
	for _, q := range leaves {
		fill(unicode.ToLower(q.letter), max(0, s.used[q.id]-float64(q.nominal)))
	}
	fill('.', float64(total)-at)
	return out
}

// picture draws the day.
func (w *world) picture(out io.Writer) {
	rows := nodes * perNode / perRow
	lines := make([]strings.Builder, rows)
	for i := 0; i < len(w.samples); i += perColumn {
		for y, letter := range w.samples[i].column() {
			lines[y].WriteRune(letter)
		}
	}
	fmt.Fprintln(out, "GPUs in use: A ads, M maps, V vision, R research; capital: within the own quota, small: borrowed, dot: idle")
	for y := rows - 1; y >= 0; y-- {
		fmt.Fprintf(out, "%4d %s\n", (y+1)*perRow, &lines[y])
	}
	hours, marks := strings.Builder{}, []byte(strings.Repeat(" ", len(w.samples)/perColumn+1))
	for i := 0; i < len(w.samples); i += 12 {
		fmt.Fprintf(&hours, "%-*s", 12/perColumn, clock(i))
	}
	for n, e := range w.events {
		marks[e.tick/perColumn] = byte('1' + n)
	}
	fmt.Fprintf(out, "     %s\n     %s\n\n", &hours, strings.TrimRight(string(marks), " "))
}

// tell tells what has happened.
func (w *world) tell(out io.Writer) {
	for n, e := range w.events {
		fmt.Fprintf(out, "%d  %s  %s:", n+1, clock(e.tick), e.what)
		for _, q := range leaves {
			if from, to := e.from[q.id], e.upTo[q.id]; from != to {
				fmt.Fprintf(out, " %s %g -> %g", q.id, from, to)
			}
			if n := e.gaveBack[q.id]; n > 0 {
				fmt.Fprintf(out, " (%g evicted)", n)
			}
		}
		fmt.Fprintln(out)
	}
}

// sum prints the last lines, and returns whether all is as it should be.
func (w *world) sum(out io.Writer) bool {
	worst, mean, evicted, twice := 0.0, 0.0, 0, 0
	for i := range w.samples {
		e := w.samples[i].error()
		worst, mean = max(worst, e), mean+e/float64(len(w.samples))
		evicted += w.samples[i].evicted
	}
	for _, n := range w.evicted {
		if n > 1 {
			twice++
		}
	}
	fmt.Fprintf(out, "\n%d capsules were submitted, %d evictions took back what was borrowed. The GPUs were never further than %.1f%% from the ideal.\n", w.made+perNode, evicted, 100*worst)
	fmt.Fprintf(out, "over quota %d\nevicted twice %d\nshare error %.2f%%\n", w.over, twice, 100*mean)
	return w.over == 0 && twice == 0
}
