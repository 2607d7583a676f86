#!/usr/bin/env bash
# Makes the virtual environment that the rival `autogluon` runs in (about 2.2 GB with CPU torch):
#
#     benchmarks/autogluon_env.sh FOLDER
#     MIXTREE_AUTOGLUON=FOLDER mixtree arena --tables --methods autogluon
#
# It is apart from mixtree's own environment: AutoGluon pins older versions of many packages. Not part of CI.
# Where another index of CPU builds of torch is needed, say so in PIP_EXTRA_INDEX_URL.
set -euo pipefail
folder=${1:?usage: benchmarks/autogluon_env.sh FOLDER}
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet "torch==2.13.0" "autogluon.tabular[lightgbm,catboost,xgboost,fastai]==1.6.3"
"$folder/bin/python" -c 'import autogluon.tabular as a; print("autogluon.tabular", a.__version__)'
du -sh "$folder"
