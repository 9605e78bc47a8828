//go:build !linux

package cputime

import "time"

// Name names what is measured, for output.
const Name = "wall time"

var start = time.Now()

func process() time.Duration { return time.Since(start) }

func thread() time.Duration { return time.Since(start) }
