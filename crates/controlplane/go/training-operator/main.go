// The reconcilers of the training operator, as they are, under a main of our own.
//
// Its own main also runs a webhook server, whose certificates it expects under a fixed path in /tmp and whose
// calls the API server would send to a cluster IP. Neither exists here, and two clusters must not share a path.
package main

import (
	"flag"
	"fmt"
	"os"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllers "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"k8s.io/apimachinery/pkg/runtime"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	probe := flag.String("health-probe-bind-address", "127.0.0.1:8081", "where /readyz is served")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(*probe); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(probe string) error {
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	config.Config.MPIKubectlDeliveryImage = config.MPIKubectlDeliveryImageDefault

	scheme := runtime.NewScheme()
	if err := clientgo.AddToScheme(scheme); err != nil {
		return err
	}
	if err := kubeflow.AddToScheme(scheme); err != nil {
		return err
	}
	kubeconfig, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(kubeconfig, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: probe,
	})
	if err != nil {
		return err
	}
	for kind, setUp := range controllers.SupportedSchemeReconciler {
		if err := setUp(manager, common.GenNonGangSchedulerSetupFunc(), 4); err != nil {
			return fmt.Errorf("the controller of %s: %w", kind, err)
		}
	}
	if err := manager.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
