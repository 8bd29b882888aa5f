// What Prometheus' own discovery of Kubernetes finds, as the JSON of its file discovery.
//
//	discovery JOB OUT
//
// JOB is a file with one scrape_config (YAML), whose kubernetes_sd_configs are read and nothing else. OUT is written
// anew, whole, whenever something has changed. For the tests: the Prometheus of Debian is built without
// kubernetes_sd_configs.
package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"go.yaml.in/yaml/v2"
)

type job struct {
	Discovery []*kubernetes.SDConfig `yaml:"kubernetes_sd_configs"`
}

// As the file discovery reads it.
type group struct {
	Targets []string       `json:"targets"`
	Labels  model.LabelSet `json:"labels"`
}

func main() {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, logger, os.Args[1], os.Args[2]); err != nil {
		logger.Error("discovery", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, logger *slog.Logger, file, out string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var found job
	if err := yaml.Unmarshal(text, &found); err != nil {
		return err
	}
	updates := make(chan []*targetgroup.Group)
	for _, config := range found.Discovery {
		registry := prometheus.NewRegistry()
		refresh := discovery.NewRefreshMetrics(registry)
		metrics := config.NewDiscovererMetrics(registry, refresh)
		if err := metrics.Register(); err != nil {
			return err
		}
		discoverer, err := config.NewDiscoverer(discovery.DiscovererOptions{Logger: logger, Metrics: metrics})
		if err != nil {
			return err
		}
		go discoverer.Run(ctx, updates)
	}
	known := map[string]*targetgroup.Group{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case changed := <-updates:
			for _, each := range changed {
				known[each.Source] = each
			}
			if err := write(known, out); err != nil {
				return err
			}
		}
	}
}

func write(known map[string]*targetgroup.Group, out string) error {
	groups := []group{}
	for _, each := range known {
		for _, target := range each.Targets {
			labels := each.Labels.Merge(target)
			address := string(labels[model.AddressLabel])
			delete(labels, model.AddressLabel)
			groups = append(groups, group{Targets: []string{address}, Labels: labels})
		}
	}
	text, err := json.Marshal(groups)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(out+".new", out)
}
