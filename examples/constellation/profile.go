package main

import (
	"errors"
	"os"
	"runtime/pprof"
)

// profiled runs f and writes the profiles that are asked for.
func profiled(o options, f func() error) (err error) {
	if o.cpuProfile != "" {
		file, err := os.Create(o.cpuProfile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return errors.Join(err, file.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, file.Close())
		}()
	}
	if err := f(); err != nil || o.memProfile == "" {
		return err
	}
	file, err := os.Create(o.memProfile)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}
