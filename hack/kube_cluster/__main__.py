import sys

from kube_cluster.cli import main

sys.exit(main())
