package diskledger

// WithLogs returns options of a ledger that makes a checkpoint only after so many logs.
func (o Options) WithLogs(n uint64) Options {
	o.logs = n
	return o
}

// For tests of how changes are written and read.
var (
	AppendChange  = appendChange
	ReadPlacement = readPlacement
)
