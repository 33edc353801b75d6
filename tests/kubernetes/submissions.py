"""Submissions as people type them: the guides' own, every flag at once, and nasty values.

The images are other ones than in the guides; nothing here pulls any.
"""

FILES = {
    "/host/app.yaml": "log:\n  level: 'debug'\n",
    "/host/run.conf": 'name = "x"\n\ttab\n',
}

_GUIDE_1 = r"""
arena submit etjob \
        --name=elastic-training-synthetic \
        --gpus=1 \
        --workers=3 \
        --max-workers=9 \
        --min-workers=1 \
        --image=registry.example/horovod:0.20.0-tf2.3.0-torch1.6.0-mxnet1.6.0.post0-py3.7-cuda10.1 \
        --working-dir=/examples \
        "horovodrun
        --verbose
        --log-level=DEBUG
        -np \$((\${workers}*\${gpus}))
        --min-np \$((\${minWorkers}*\${gpus}))
        --max-np \$((\${maxWorkers}*\${gpus}))
        --start-timeout 100
        --elastic-timeout 1000
        --host-discovery-script /usr/local/bin/discover_hosts.sh
        python /examples/elastic/pytorch_synthetic_benchmark_elastic.py
        --num-iters=10000
        --num-warmup-batches=0"
"""

_GUIDE_2 = r"""
arena submit etjob \
    --name=elastic-training \
    --gpus=1 \
    --workers=3 \
    --max-workers=9 \
    --min-workers=1 \
    --image=registry.example/horovod:0.20.0-tf2.3.0-torch1.6.0-mxnet1.6.0.post0-py3.7-cuda10.1 \
    --working-dir=/examples \
    "horovodrun \
    -np \$((\${workers}*\${gpus})) \
    --min-np \$((\${minWorkers}*\${gpus})) \
    --max-np \$((\${maxWorkers}*\${gpus})) \
    --host-discovery-script /etc/edl/discover_hosts.sh \
    python /examples/elastic/tensorflow2_mnist_elastic.py
    "
"""

_GUIDE_3 = r"""
arena submit pytorch \
        --name=pytorch-dist-git \
        --gpus=1 \
        --workers=2 \
        --image=registry.example/pytorch-with-tensorboard:1.5.1-cuda10.1-cudnn7-runtime \
        --sync-mode=git \
        --sync-source=https://git.example/samples/mnist-pytorch.git \
        "python /root/code/mnist-pytorch/mnist.py --backend gloo"
"""

_COMMON = r"""-n team --image=registry.example/train:1 --image-pull-policy=IfNotPresent \
    --image-pull-secret=pull-a --image-pull-secret=pull-b \
    --gpus=2 --cpu=4 --memory=16Gi --device=example.org/nic=1 \
    --working-dir=/workspace -e MODE=fast -e LR=0.1 \
    -e GIT_SYNC_USERNAME=ada -e GIT_SYNC_PASSWORD=hush -e GIT_SYNC_BRANCH=main \
    -d data-claim:/data -d output.claim:/output \
    --data-dir /mnt/cache --data-dir /mnt/logs:/training_logs \
    --config-file /host/app.yaml:/etc/app/app.yaml --config-file /host/run.conf \
    -a example.org/team=vision -l project=demo \
    --rdma --gang --queue -p high --scheduler=gang-scheduler --shell=bash \
    --toleration=gpu=yes:NoSchedule,Equal --toleration=all --selector=gpu=a100 \
    --hostNetwork --hostIPC --hostPID \
    --model-name=resnet --model-source=pvc://output.claim/model \
    --sync-mode=git --sync-source=https://git.example/team/code.git --sync-image=git-sync:4 \
    --tensorboard --tensorboard-image=tensorboard:2 --logdir=/training_logs"""

_EVERYTHING_ETJOB = rf"""
arena submit etjob --name=everything --workers=4 --min-workers=2 --max-workers=8 {_COMMON} \
    --run-in=launcher --spot-instance --max-wait-time=10m --retry=3 \
    --job-restart-policy=OnFailure --worker-restart-policy=ExitCode --job-backoff-limit=2 \
    --launcher-annotation=example.org/role=boss --worker-annotation=example.org/role=hand \
    --launcher-selector=pool=cheap --ssh-secret=keys \
    "horovodrun -np 4 python train.py"
"""

_EVERYTHING_PYTORCHJOB = rf"""
arena submit pytorchjob --name=everything --workers=4 {_COMMON} \
    --retry=3 --clean-task-policy=All --running-timeout=2h --ttl-after-finished=1d \
    --share-memory=8Gi --nproc-per-node=2 \
    "torchrun train.py"
"""

_ELASTIC_PYTORCH = r"""
arena submit pytorch --name=elastic --workers=2 --min-workers=1 --max-workers=6 --gpus=1 \
    --image=registry.example/train:1 python train.py
"""

_NASTY = r"""
arena submit etjob --name=nasty --image=registry.example/train:1 \
    -e 'QUOTES=say "hi", it'\''s' -e $'LINES=one\ntwo\n' -e 'BACK=a\b\\c' -e EMPTY= \
    -e 'YAML=- {a: [1, *b]} # no: comment' -e 'TEMPLATE={{ .Values.x }}' -e 'EQUALS=a=b=c' \
    -e 'NUMBER=007' -e 'TRUTH=yes' -e 'DOLLARS=$$ $(workers) ${HOME}' -e 'UNICODE=päßwört ✓' \
    -a 'example.org/json={"a": ["b", 1]}' \
    'echo "pid $$ of $(workers)" && printf '\''%s\n'\'' "$LINES" | cat -  # : {not yaml}'
"""

_SMALL_ETJOB = """
arena submit et --name=small --image=train --run-in=workers --shell=/bin/bash -- python train.py
"""

_RSYNC = """
arena submit etjob --name=rsync --image=train --workers=2 --syncMode=rsync \
    --syncSource=10.0.0.1::backup/code --working-dir=/srv "midflight run -- python code/train.py"
"""

_ALONE = """
arena submit pytorchjob --name=alone --image=train python train.py
"""

SUBMISSIONS = {
    "guide-1": _GUIDE_1,
    "guide-2": _GUIDE_2,
    "guide-3": _GUIDE_3,
    "everything-etjob": _EVERYTHING_ETJOB,
    "everything-pytorchjob": _EVERYTHING_PYTORCHJOB,
    "elastic-pytorchjob": _ELASTIC_PYTORCH,
    "nasty-values": _NASTY,
    "small-etjob": _SMALL_ETJOB,
    "rsync-etjob": _RSYNC,
    "one-pytorchjob": _ALONE,
}
