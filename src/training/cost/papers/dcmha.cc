#include "items.h"

namespace headroom::cost::detail {
namespace {

constexpr PaperItem kDcmhaItems[] = {
    {"Table 1", "approaches to composing heads", "", "Words: what is composed, and of how many parameters."},
    {"Figure 1", "maps of heads and what they do", "", "A drawing."},
    {"Section 2.2", "composed matrices are composed projections (theorems 2.1 and 2.2, appendix B)", "", "Proofs."},
    {"Figure 2", "the layer", "",
     "A drawing. The layer: `model.attention.composition = \"dynamic\"`, described in `docs/layers.md`."},
    {"Appendix D", "pseudo-code", "",
     "The layer in plain tensor operations is `src/engine/nn/attention/composition.cc`; `headroom golden "
     "tests/tools/golden/cases` runs it "
     "against cases computed elsewhere."},
    {"Section 3.2", "heads composed in groups", "",
     "`headroom train dcmha/1b4_dcformer_pp --set model.attention.compose_groups=4 --set "
     "model.attention.compose_rank=1 --out runs/groups`"},
    {"Table 2", "extra parameters and computation", "dcmha/1b4_dcformer_pp dcmha/6b9_dcformer_pp",
     "`headroom cost --paper dcmha`"},
    {"Appendix E", "the same, derived", "", "`headroom cost --paper dcmha`"},
    {"Table 3", "models of the scaling experiments", "dcmha/405m_* dcmha/834m_* dcmha/1b4_*",
     "`headroom recipes`; sizes: `headroom cost --paper dcmha`"},
    {"Figure 3", "loss against compute",
     "dcmha/405m_transformer* dcmha/405m_dcformer dcmha/405m_dcformer_pp dcmha/834m_* dcmha/1b4_*",
     "`headroom compare --family transformer=dcmha/405m_transformer,dcmha/834m_transformer,dcmha/1b4_transformer "
     "--family dcformer=dcmha/405m_dcformer,dcmha/834m_dcformer,dcmha/1b4_dcformer --out runs/scaling` and so for "
     "`_pp`: a line through each family, and how many times the compute of DCFormer the Transformer needs. At a small "
     "scale: `docs/results.md`"},
    {"Appendix C", "training", "dcmha/*", "`headroom recipes`; `tests/recipes` holds every recipe against it."},
    {"Figure 4", "loss against compute, Pythia and DCPythia", "dcmha/*_pythia dcmha/2b8_dcpythia dcmha/6b9_dcpythia",
     "`headroom compare --family pythia=dcmha/2b8_pythia,dcmha/6b9_pythia,dcmha/12b_pythia --family "
     "dcpythia=dcmha/2b8_dcpythia,dcmha/6b9_dcpythia --out runs/pythia`"},
    {"Table 4", "the Pile, and eleven tests, without examples and with five", "dcmha/*pythia dcmha/2b8_dcformer_pp",
     "`headroom evaluate RUN --data test.jsonl.zst`; `headroom evaluate RUN --task piqa --data piqa.jsonl`, `headroom "
     "evaluate RUN --task hellaswag --data hellaswag.jsonl --shots 5`, and so for the others. Pythia's published "
     "models: `headroom import`."},
    {"Table 4", "perplexity on the Flan Collection", "",
     "`headroom evaluate RUN --task target_loss --data flan.jsonl`"},
    {"Table 5", "synthetic tasks", "dcmha/6b9_pythia dcmha/6b9_dcpythia",
     "`headroom evaluate RUN --task composition --data synthetic_dataset.jsonl.gz`; models that learn them: `headroom "
     "compare small/composition_dense small/composition_dcmha --out runs/composition`"},
    {"Table 11", "examples of them", "",
     "`data.generator = \"composition\"` makes such rows of other words: `docs/tasks.md`"},
    {"Figure 6", "synthetic tasks by number of examples", "dcmha/6b9_pythia dcmha/6b9_dcpythia",
     "`headroom evaluate RUN --task composition --by-shots --data synthetic_dataset.jsonl.gz`"},
    {"Figure 5", "diversity of heads", "dcmha/6b9_pythia dcmha/6b9_dcpythia", kAnalyseDiversity},
    {"Section 4.3", "continuing a pre-trained dense model with composed heads", "",
     "Not there: `train.start_from` continues a model of the same layers. The paper reports that it gained nothing."},
    {"Table 6", "speed of training and of writing",
     "dcmha/2b8_*_pp dcmha/6b9_dcformer_pp dcmha/6b9_transformer_pp dcmha/13b_*_pp dcmha/33b_*_pp",
     "Training: `headroom bench dcformer`, with four layers of each. Writing: `headroom bench generation --prompt 1024 "
     "--tokens 128 dcmha/2b8_transformer_pp dcmha/2b8_dcformer_pp`. The paper's are those of TPU v3 and of an A100."},
    {"Table 7", "vision Transformers", "dcmha/*vit_*", "`headroom cost --paper dcmha`"},
    {"Table 8", "ImageNet-1k after 90 and 300 epochs, top 1 and top 5", "dcmha/*vit_*",
     "`headroom train dcmha/dcvit_s16 --set 'data.train=[\"imagenet/train-*.tar\"]' --set "
     "'data.validation=[\"imagenet/val-*.tar\"]' --out runs/dcvit`, or folders of pictures, `imagenet/train`; in "
     "small: `docs/results.md`"},
    {"Table 9", "which parts of the composition count",
     "dcmha/table9_* dcmha/405m_transformer_pp dcmha/405m_dcformer_pp",
     "`headroom compare dcmha/405m_transformer_pp dcmha/table9_static dcmha/table9_gate dcmha/405m_dcformer_pp --out "
     "runs/table9`"},
    {"Table 10", "more local layers, composition by the query alone",
     "dcmha/405m_dcformer_pp* dcmha/6b9_dcformer_pp* dcmha/6b9_dcpythia_* dcmha/6b9_transformer_pp",
     "`headroom compare dcmha/405m_dcformer_pp dcmha/405m_dcformer_pp_local_3_1 --out runs/table10`; speed: `headroom "
     "bench profile --config dcmha/405m_dcformer_pp_local_3_1`"},
    {"Figure 7", "what each branch makes of a weight", "dcmha/6b9_dcpythia", kAnalyseComposition},
    {"Figure 8", "weights along a sequence", "dcmha/6b9_dcpythia", kAnalyseCompositionAndMaps},
    {"Section G.1", "what a head's OV circuit writes", "dcmha/6b9_dcpythia", kAnalyseCircuits},
};

}  // namespace

std::span<const PaperItem> dcmha_items() {
  return kDcmhaItems;
}

}  // namespace headroom::cost::detail
