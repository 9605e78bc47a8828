module github.com/orbitsched/orbit/logledger

go 1.26.0

require (
	github.com/klauspost/compress v1.20.4
	github.com/orbitsched/orbit v0.1.0
	github.com/stretchr/testify v1.12.1
	pgregory.net/rapid v1.3.0
)

require (
	github.com/google/btree v1.1.3 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
)

replace github.com/orbitsched/orbit => ../
