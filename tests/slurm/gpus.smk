# Three jobs that each need one of two GPUs and keep theirs until both have been in use.
rule all:
    input:
        expand("job{number}", number=range(3)),


rule hold:
    output:
        "job{number}",
    resources:
        gpu=1,
        slurm_partition="gpu",
        mem_mb=500,
    shell:
        """
        mkdir "held-$CUDA_VISIBLE_DEVICES"
        touch "seen-$CUDA_VISIBLE_DEVICES"
        until [ "$(ls -d seen-* | wc -l)" = 2 ]; do sleep 0.1; done
        rmdir "held-$CUDA_VISIBLE_DEVICES"
        echo "$CUDA_VISIBLE_DEVICES" >{output}
        """
