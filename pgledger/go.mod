module github.com/orbitsched/orbit/pgledger

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/orbitsched/orbit v0.1.0
	github.com/orbitsched/orbit/logledger v0.1.0
	github.com/stretchr/testify v1.12.1
	pgregory.net/rapid v1.3.0
)

require (
	github.com/google/btree v1.1.3 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace (
	github.com/orbitsched/orbit => ../
	github.com/orbitsched/orbit/logledger => ../logledger
)
