package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
)

// heap returns the bytes that live objects take, after collecting what set-up has left behind.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// peakMemory returns the most memory that the process has taken so far, in bytes: what the kernel says where
// it says so, else all that the runtime has ever asked for.
func peakMemory() uint64 {
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
			var kib uint64
			if _, err := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &kib); err == nil {
				return kib << 10
			}
		}
	}
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// mebibytes writes bytes as "123 MiB".
func mebibytes(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
