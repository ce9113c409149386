module github.com/fermata-io/fermata/deploy/kubelab/parts/pause

go 1.26.0
