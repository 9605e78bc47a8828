//go:build !linux

package cputime

import "time"

// Name is what is measured, for the output.
const Name = "wall time"

var start = time.Now()

func process() time.Duration { return time.Since(start) }

func thread() time.Duration { return time.Since(start) }
