// Referee is kube-scheduler with three more score plugins. They check the scores and the placements of the operator's
// scheduler extender: a plugin uses the scheduler's own sums, which include the Pods that are not bound yet.
//
// `referee score FILE` needs no cluster: it prints the scores of the cases in a file.
//
// No plugin here implements SignPlugin. The scheduler therefore scores each Pod of their profiles by itself, even if
// its feature OpportunisticBatching is on. A result that is reused for the next Pod would be stale for Rbra and wrong
// for RbraTie, whose score depends on the Pod's name.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "score" {
		if err := printScores(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "referee score:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(cli.Run(app.NewSchedulerCommand(
		app.WithPlugin("Rbra", newRbra),
		app.WithPlugin("RbraTie", newRbraTie),
		app.WithPlugin("LoadVariation", newLoadVariation),
	)))
}

// noNormalization is embedded by plugins whose scores are from 0 to 100 already.
type noNormalization struct{}

func (noNormalization) ScoreExtensions() fwk.ScoreExtensions { return nil }

// amount returns the sum of a resource: CPU in thousandths of a core, all others in whole units. The scheduler does not
// sum up some names, for example `pods`; their amount is 0.
func amount(sums fwk.Resource, name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return sums.GetMilliCPU()
	case v1.ResourceMemory:
		return sums.GetMemory()
	case v1.ResourceEphemeralStorage:
		return sums.GetEphemeralStorage()
	default:
		return sums.GetScalarResources()[name]
	}
}

// fractions returns requested/allocatable with the incoming Pod on the node, at most 1, in the order of the resources.
// It leaves out a resource that the node does not have. The Pod's request is the one that the scheduler itself adds to
// the node's sums after it has chosen the node.
func fractions(pod *v1.Pod, node fwk.NodeInfo, resources []v1.ResourceName) []float64 {
	// An invalid affinity term is the only error, and AddPod ignores it too.
	info, _ := framework.NewPodInfo(pod)
	incoming := info.CalculateResource().Resource

	var shares []float64
	for _, name := range resources {
		if allocatable := amount(node.GetAllocatable(), name); allocatable > 0 {
			requested := amount(node.GetRequested(), name) + amount(incoming, name)
			shares = append(shares, min(float64(requested)/float64(allocatable), 1))
		}
	}
	return shares
}

// paperResources are those of the paper.
var paperResources = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}

// rbra scores a node by the coefficient of variation of its fractions. Source: Huo et al., "Refined Balanced Resource
// Allocation Based on Kubernetes", ICBASE 2022. Its fields are its arguments in the scheduler's configuration.
type rbra struct {
	noNormalization
	// Std is the definition of the standard deviation: `Population` (the paper's equation 11) or `Literal` (its step 7).
	Std       string            `json:"std"`
	Resources []v1.ResourceName `json:"resources"`
}

func newRbra(_ context.Context, arguments runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	plugin := &rbra{Std: "Population"}
	if err := frameworkruntime.DecodeInto(arguments, plugin); err != nil {
		return nil, fmt.Errorf("decode the arguments of Rbra: %w", err)
	}
	if plugin.Std != "Population" && plugin.Std != "Literal" {
		return nil, fmt.Errorf("Rbra: std is %q, set it to Population or Literal", plugin.Std)
	}
	if len(plugin.Resources) == 0 {
		plugin.Resources = paperResources
	}
	return plugin, nil
}

func (*rbra) Name() string { return "Rbra" }

func (plugin *rbra) Score(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	return rbraScore(fractions(pod, node, plugin.Resources), plugin.Std == "Literal"), nil
}

// rounding keeps a score that is whole but for errors of float64 from losing a point: fractions of 0.1 each are equal.
const rounding = 1e-9

// rbraScore returns the score of the fractions, from 0 to 100. The conversions to float64 forbid fused multiplication
// and addition, so that each processor computes the same score.
func rbraScore(fractions []float64, literal bool) int64 {
	n := float64(len(fractions))
	if n < 2 {
		return 100
	}
	if n == 2 {
		return int64(float64((1-math.Abs(fractions[0]-fractions[1]))*100) + rounding)
	}

	var sum, squares float64
	for _, x := range fractions {
		sum += x
	}
	mean := sum / n
	if mean == 0 {
		return 100
	}
	for _, x := range fractions {
		squares += float64((x - mean) * (x - mean))
	}
	std := math.Sqrt(squares / n)
	if literal {
		std = math.Sqrt(squares) / 3
	}
	return int64(min(max(float64((1-std/mean)*100)+rounding, 0), 100))
}

// rbraTie orders nodes of the same score, at random but with a seed. Its weight is 1 beside Rbra's weight 1000.
type rbraTie struct {
	Seed int64 `json:"seed"`
}

func newRbraTie(_ context.Context, arguments runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	plugin := &rbraTie{}
	if err := frameworkruntime.DecodeInto(arguments, plugin); err != nil {
		return nil, fmt.Errorf("decode the arguments of RbraTie: %w", err)
	}
	return plugin, nil
}

func (*rbraTie) Name() string                                { return "RbraTie" }
func (plugin *rbraTie) ScoreExtensions() fwk.ScoreExtensions { return plugin }

// Score returns the bits of the hash. NormalizeScore, which has all nodes, replaces them.
func (plugin *rbraTie) Score(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	return int64(mix(fnv1a(fmt.Sprintf("%d/%s/%s/%s", plugin.Seed, pod.Namespace, pod.Name, node.Node().Name)))), nil
}

// NormalizeScore replaces each hash by the node's rank, from 0. With more than 101 nodes the lowest share rank 0, since
// the scheduler accepts no score above 100.
func (*rbraTie) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	order := make([]*fwk.NodeScore, len(scores))
	for i := range scores {
		order[i] = &scores[i]
	}
	slices.SortFunc(order, func(a, b *fwk.NodeScore) int {
		return cmp.Or(cmp.Compare(uint64(a.Score), uint64(b.Score)), cmp.Compare(a.Name, b.Name))
	})
	surplus := max(len(order)-int(fwk.MaxNodeScore)-1, 0)
	for rank, node := range order {
		node.Score = int64(max(rank-surplus, 0))
	}
	return nil
}

// fnv1a is FNV-1a with 64 bits.
func fnv1a(text string) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(text))
	return hash.Sum64()
}

// mix is the finalizer of MurmurHash3 with 64 bits: each bit of the result depends on each bit of the hash. Without it,
// names that differ only in their last character have similar hashes: the last of 3 nodes wins every second tie.
func mix(hash uint64) uint64 {
	hash = (hash ^ hash>>33) * 0xff51afd7ed558ccd
	hash = (hash ^ hash>>33) * 0xc4ceb9fe1a85ec53
	return hash ^ hash>>33
}

// loadVariation is the formula of LoadVariationRiskBalancing of kubernetes-sigs/scheduler-plugins with substitutes for
// its measurements, which hollow nodes do not have. The mean load is the requested fraction. The standard deviation is
// synthetic: a fixed fraction of each node, from 0 to 0.2, that depends only on its name.
type loadVariation struct {
	noNormalization
	Margin      float64 `json:"margin"`
	Sensitivity float64 `json:"sensitivity"`
}

func newLoadVariation(_ context.Context, arguments runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	plugin := &loadVariation{Margin: 1, Sensitivity: 1}
	if err := frameworkruntime.DecodeInto(arguments, plugin); err != nil {
		return nil, fmt.Errorf("decode the arguments of LoadVariation: %w", err)
	}
	if plugin.Margin < 0 || plugin.Sensitivity <= 0 {
		return nil, fmt.Errorf("LoadVariation: set margin to 0 or more and sensitivity above 0")
	}
	return plugin, nil
}

func (*loadVariation) Name() string { return "LoadVariation" }

func (plugin *loadVariation) Score(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	sigma := float64(fnv1a(node.Node().Name)%2001) / 10_000
	variation := min(plugin.Margin*math.Pow(sigma, 1/plugin.Sensitivity), 1)

	score := 100.0
	for _, mu := range fractions(pod, node, []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}) {
		score = min(score, 100*(1-(mu+variation)/2))
	}
	return int64(math.Round(score)), nil
}

// scoreCase is one situation of `referee score`. Its other keys are ignored.
type scoreCase struct {
	Name      string            `json:"name"`
	Nodes     []v1.Node         `json:"nodes"`
	Pods      []v1.Pod          `json:"pods"`
	Incoming  v1.Pod            `json:"incoming"`
	Resources []v1.ResourceName `json:"resources"`
}

// scores are those of one node.
type scores struct {
	Population int64 `json:"population"`
	Literal    int64 `json:"literal"`
	// Balanced is the score of NodeResourcesBalancedAllocation, 0 if its PreScore skips the Pod.
	Balanced int64 `json:"balanced"`
}

func printScores(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var cases []scoreCase
	if err := json.Unmarshal(content, &cases); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}

	results := map[string]map[string]scores{}
	for _, one := range cases {
		if _, exists := results[one.Name]; exists {
			return fmt.Errorf("two cases have the name %q, rename one", one.Name)
		}
		if results[one.Name], err = one.scores(); err != nil {
			return fmt.Errorf("score case %q: %w", one.Name, err)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(results)
}

func (one *scoreCase) scores() (map[string]scores, error) {
	resources := one.Resources
	if len(resources) == 0 {
		resources = paperResources
	}

	results := map[string]scores{}
	for i := range one.Nodes {
		node := one.nodeInfo(&one.Nodes[i])
		balanced, err := balancedScore(&one.Incoming, node, resources)
		if err != nil {
			return nil, err
		}
		shares := fractions(&one.Incoming, node, resources)
		results[node.Node().Name] = scores{rbraScore(shares, false), rbraScore(shares, true), balanced}
	}
	return results, nil
}

// nodeInfo returns the node with the Pods that the scheduler's cache holds for it. The Pod informer of the scheduler
// selects by phase and leaves out Pods that have succeeded or failed; a terminating Pod counts until then.
func (one *scoreCase) nodeInfo(node *v1.Node) fwk.NodeInfo {
	info := framework.NewNodeInfo()
	info.SetNode(node)
	for i := range one.Pods {
		pod := &one.Pods[i]
		isTerminal := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if pod.Spec.NodeName == node.Name && !isTerminal {
			info.AddPod(pod)
		}
	}
	return info
}

// handle is the part of the framework that NodeResourcesBalancedAllocation uses.
type handle struct{ fwk.Handle }

func (handle) SharedDRAManager() fwk.SharedDRAManager { return nil }

// balancedScore returns the score of this version's NodeResourcesBalancedAllocation. The cases have no
// ResourceSlices, so the plugin's part for devices is off.
func balancedScore(pod *v1.Pod, node fwk.NodeInfo, resources []v1.ResourceName) (int64, error) {
	ctx, arguments := context.Background(), &config.NodeResourcesBalancedAllocationArgs{}
	for _, name := range resources {
		arguments.Resources = append(arguments.Resources, config.ResourceSpec{Name: string(name), Weight: 1})
	}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	features.EnableDRAExtendedResource = false
	created, err := noderesources.NewBalancedAllocation(ctx, arguments, handle{}, features)
	if err != nil {
		return 0, err
	}

	plugin := created.(*noderesources.BalancedAllocation)
	state := framework.NewCycleState()
	if status := plugin.PreScore(ctx, state, pod, []fwk.NodeInfo{node}); status.IsSkip() {
		return 0, nil
	} else if !status.IsSuccess() {
		return 0, status.AsError()
	}
	score, status := plugin.Score(ctx, state, pod, node)
	return score, status.AsError()
}
