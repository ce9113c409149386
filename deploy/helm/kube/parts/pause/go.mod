module github.com/fermata-io/fermata/deploy/helm/kube/parts/pause

go 1.26.0
